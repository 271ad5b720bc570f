package pathsafe

import (
	"path"
	"strings"
	"testing"
)

var pathSeeds = []string{
	"", "/", "a", "/a", "a/", "a//b", ".", "./a", "..", "a/..", "a/../b", "a\x00b", "a\nb", "a\x7f", "...", "..a", "a b",
	"größe", strings.Repeat("a", 256), strings.Repeat("a/", 129), strings.Repeat("a/", 2048), "\xff\xfe",
}

// An accepted path, joined below a root and cleaned, stays below it, and is
// already clean.
func FuzzParseRel(f *testing.F) {
	for _, s := range pathSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, nameErr := ParseName(s)
		r, err := ParseRel(s)
		if err != nil {
			if nameErr == nil {
				t.Fatalf("name %q is no path", n)
			}
			return
		}
		if nameErr == nil == strings.Contains(s, "/") {
			t.Fatalf("%q as a name: %v", s, nameErr)
		}
		if r.String() != s {
			t.Fatalf("%q became %q", s, r)
		}
		if got := path.Clean("/r/" + s); got != "/r/"+s {
			t.Fatalf("%q cleans to %q", s, got)
		}
		for i := range len(s) {
			if s[i] < 0x20 || s[i] == 0x7f {
				t.Fatalf("%q holds byte %#x", s, s[i])
			}
		}
		if len(s) > 4095 {
			t.Fatal("too long")
		}
	})
}

// An accepted path is one that the kernel can take, and means the same path.
func FuzzParseInRoot(f *testing.F) {
	for _, s := range pathSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseInRoot(s)
		if err != nil {
			if len(s) <= 4095 && !strings.Contains(s, "\x00") {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		c := p.c.String()
		if c == "" || strings.HasPrefix(c, "/") || strings.Contains(c, "\x00") || len(c) > 4095 {
			t.Fatalf("%q became %q", s, c)
		}
		if path.Clean("/"+c) != path.Clean("/"+s) {
			t.Fatalf("%q became %q", s, c)
		}
	})
}

// slowSysctl says the same as ParseSysctl by a table and in another way.
func slowSysctl(key string) (string, bool) {
	dots := false
	for _, c := range key {
		if c == '.' || c == '/' {
			dots = c == '.'
			break
		}
	}
	var comps []string
	cur := ""
	for _, c := range key {
		switch {
		case (c == '.') == dots && (c == '.' || c == '/'):
			comps = append(comps, cur)
			cur = ""
		case c == '.' || c == '/':
			cur += "."
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
			cur += string(c)
		default:
			return "", false
		}
	}
	comps = append(comps, cur)
	if len(comps) < 2 || len(comps) > 127 {
		return "", false
	}
	for _, comp := range comps {
		if comp == "" || comp == "." || comp == ".." || len(comp) > 255 {
			return "", false
		}
	}
	joined := strings.Join(comps, "/")
	for _, ok := range []string{
		"net/*", "user/*", "fs/mqueue/*", "kernel/domainname", "kernel/sem", "kernel/auto_msgmni",
		"kernel/msgmax", "kernel/msgmnb", "kernel/msgmni", "kernel/msg_next_id", "kernel/sem_next_id", "kernel/shm_next_id",
		"kernel/shm_rmid_forced", "kernel/shmall", "kernel/shmmax", "kernel/shmmni",
	} {
		pre, any := strings.CutSuffix(ok, "*")
		if joined == ok || any && strings.HasPrefix(joined, pre) && len(joined) > len(pre) {
			return "sys/" + joined, len("sys/"+joined) <= 4095
		}
	}
	return "", false
}

// ParseSysctl agrees with the slow way, and no accepted key leaves the tables.
func FuzzSysctlKey(f *testing.F) {
	for _, s := range []string{
		"net.ipv4.ip_forward", "net/ipv4/conf/eth0.1/rp_filter", "net.ipv4.conf.eth0/1.rp_filter", "kernel.core_pattern",
		"net/../kernel/core_pattern", "net.//.kernel.core_pattern", "kernel.sem", "fs.mqueue.msg_max", "user.x", "net..x", ".", "net./././x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, key string) {
		s, err := ParseSysctl(key)
		want, ok := slowSysctl(key)
		if ok != (err == nil) || ok && s.Path().String() != want {
			t.Fatalf("%q: %q, %v; the slow way: %q, %v", key, s.Path(), err, want, ok)
		}
		if ok && path.Clean("/"+want) != "/"+want {
			t.Fatalf("%q leads to %q", key, want)
		}
	})
}

// What is parsed of mountinfo never panics, and each entry is on a line.
func FuzzMountInfo(f *testing.F) {
	f.Add("22 27 0:21 / /proc rw,relatime - proc proc rw\n")
	f.Add(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue`)
	f.Add("40 31 0:37 / /x rw - cgroup  rw\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMountInfo(text)
		if err == nil && len(m) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d entries of %q", len(m), text)
		}
	})
}
