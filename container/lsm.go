package container

import (
	"fmt"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// labels turns the spec's LSM labels into what the process writes for its next
// execve. A label without its module on this host is an error: the container
// would run unconfined.
func labels(p *specs.Process) (l []exec.Label, err error) {
	if p.ApparmorProfile != "" {
		file := apparmorFile()
		if file == "" {
			return nil, fmt.Errorf("process.apparmorProfile: AppArmor is not enabled on this host: %w", ErrUnsupported)
		}
		if hasNUL(p.ApparmorProfile) {
			return nil, invalid("process.apparmorProfile", "NUL byte")
		}
		// aa_change_onexec(2): the command is "exec PROFILE".
		l = append(l, exec.Label{File: file, Value: "exec " + p.ApparmorProfile, About: "process.apparmorProfile"})
	}
	if p.SelinuxLabel != "" {
		if !hasSELinux() {
			return nil, fmt.Errorf("process.selinuxLabel: SELinux is not enabled on this host: %w", ErrUnsupported)
		}
		if hasNUL(p.SelinuxLabel) {
			return nil, invalid("process.selinuxLabel", "NUL byte")
		}
		// The session keyring that is joined next gets the label of its maker.
		for _, file := range []string{"keycreate", "exec"} {
			l = append(l, exec.Label{File: file, Value: p.SelinuxLabel, About: "process.selinuxLabel"})
		}
	}
	return l, nil
}

// apparmorFile is where AppArmor takes the profile for the next execve, below
// thread-self/attr; empty without AppArmor. The directory of its own came with
// Linux 5.1 (commit 6413f852ce08), for hosts with several modules.
var apparmorFile = sync.OnceValue(func() string {
	h, err := host()
	if err != nil {
		return ""
	}
	f, err := h.proc.Self(pathsafe.MustRel("attr/apparmor/current"))
	if err != nil {
		return ""
	}
	defer f.Close()
	var buf [4096]byte
	if _, err := f.ReadAt0(buf[:]); err != nil {
		return "" // compiled in and not enabled: EINVAL
	}
	return "apparmor/exec"
})

// hasSELinux: its file system is mounted wherever it is enabled.
var hasSELinux = sync.OnceValue(func() bool {
	mounts, err := pathsafe.MountInfo()
	if err != nil {
		return false
	}
	for _, m := range mounts {
		if m.FSType == "selinuxfs" {
			return true
		}
	}
	return false
})
