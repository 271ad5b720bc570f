package cgroups

import (
	"errors"
	"strings"
	"testing"
)

func TestPathsThatAreTaken(t *testing.T) {
	for _, tt := range []struct{ in, rel, unit string }{
		{"/a/b", "a/b", ""},
		{"a/b", "a/b", ""},
		{"/a//b/", "a/b", ""},
		{"", "ibex/web1", ""},
		{"/kubepods/burstable/pod-1:2/x", "kubepods/burstable/pod-1:2/x", ""},
		{"a.slice:ibex:web1", "a.slice/ibex-web1.scope", "ibex-web1.scope"},
		{"a-b-c.slice:cri-containerd:4f1c", "a.slice/a-b.slice/a-b-c.slice/cri-containerd-4f1c.scope", "cri-containerd-4f1c.scope"},
		{":ibex:web1", "system.slice/ibex-web1.scope", "ibex-web1.scope"},
		{"-.slice::web1", "web1.scope", "web1.scope"},
		{"a.slice::b.slice", "a.slice/b.slice", "b.slice"},
	} {
		p, err := ParsePath(tt.in, "web1")
		if err != nil {
			t.Errorf("ParsePath(%q) = %v", tt.in, err)
			continue
		}
		u, ok := p.Unit()
		if p.Rel().String() != tt.rel || u.Name != tt.unit || ok != (tt.unit != "") {
			t.Errorf("ParsePath(%q) = %q, unit %q; want %q, %q", tt.in, p.Rel(), u.Name, tt.rel, tt.unit)
		}
	}
}

func TestPathsThatAreRefused(t *testing.T) {
	for _, in := range []string{
		"../x", "/a/../../b", ".", "/", "//", "a/./b", "a\nb", "a\x00b", strings.Repeat("a", 5000), strings.Repeat("a/", 3000),
		"/x:y:z", "/a/x:y:z/b", "a:b", "a:b:c:d", "a.slice:p:", "nonsense:p:n", ".slice:p:n", "a--b.slice:p:n", "-a.slice:p:n",
		"a.slice:p:n/../x", "a.slice:p:a b", "a/b.slice:p:n",
	} {
		if p, err := ParsePath(in, "web1"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "cgroupsPath") {
			t.Errorf("ParsePath(%.40q) = %q, %v; want ErrInvalid that names the field", in, p.Rel(), err)
		}
	}
	for _, id := range []string{"", "..", "a/b"} {
		if _, err := ParsePath("", id); err == nil {
			t.Errorf("the ID %q makes a path", id)
		}
	}
}

func FuzzPathsStayBelowTheRoot(f *testing.F) {
	for _, s := range []string{"/a/b", "../x", "a.slice:p:n", "a-b.slice:p:n", "", "x:y:z", "/a/../b", "-.slice::x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePath(s, "id")
		if err != nil {
			return
		}
		rel := p.Rel().String()
		for part := range strings.SplitSeq(rel, "/") {
			if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\n\x00") {
				t.Errorf("ParsePath(%q) = %q", s, rel)
			}
			if strings.Count(part, ":") == 2 {
				t.Errorf("ParsePath(%q) makes a literal x:p:n: %q", s, rel)
			}
		}
	})
}
