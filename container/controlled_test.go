package container

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec"
)

func TestTheNodesMaskComesFirstForEverySet(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the directory must be root's")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "config.toml")
	t.Cleanup(UseNodeConfig(name))
	all := exec.Caps{Bounding: 0xff, Effective: 0xf, Permitted: 0xff, Inheritable: 0xf0, Ambient: 0xf0}
	spec := func(user bool) *specs.Spec {
		s := &specs.Spec{Linux: &specs.Linux{}}
		if user {
			s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.UserNamespace}}
		}
		return s
	}
	for _, tt := range []struct {
		conf string
		user bool
		want exec.Caps
		said bool // besides what was removed
	}{
		{"", true, all, false},
		{`controlled_userns_caps = "3c"`, true, all.And(0x3c), false},
		{`controlled_userns_caps = "3c"`, false, all, false},
		{"controlled_containers = \"all\"\ncontrolled_userns_caps = \"3c\"", false, all.And(0x3c), false},
		{`controlled_userns_caps = ["CAP_CHOWN", "kill"]`, true, all.And(1<<0 | 1<<5), false},
		{`controlled_userns_caps = ["CAP_NONSENSE"]`, true, all.And(1<<0 | 1<<5), true}, // the last good one
		{`controlled_userns_caps = "ffffffff,ffffffff"`, true, all, false},
	} {
		if err := os.WriteFile(name, []byte(tt.conf), 0o644); err != nil {
			t.Fatal(err)
		}
		var said []error
		c := &Container{spec: spec(tt.user), opts: CreateOptions{OnWarning: func(err error) { said = append(said, err) }}}
		if got := c.control(all); got != tt.want {
			t.Errorf("%q, user namespace %v: %+v", tt.conf, tt.user, got)
		}
		if (tt.said || tt.want != all) != (len(said) > 0) {
			t.Errorf("%q: said %v", tt.conf, said)
		}
	}
}
