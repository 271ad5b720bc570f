package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// joinOrder: namespaces that are joined, in order. The PID namespace changes
// nothing for the caller itself. The user namespace comes last: before it, the
// host's privileges reach into every other.
var joinOrder = []specs.LinuxNamespaceType{
	specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
	specs.TimeNamespace, specs.PIDNamespace, specs.MountNamespace, specs.UserNamespace,
}

// joined are the namespaces given by path, opened.
type joined []exec.Namespace

func (j joined) close() {
	for _, n := range j {
		unix.Close(n.FD)
	}
}

// fd returns the descriptor of kind flag, -1 if that is not joined.
func (j joined) fd(flag int) int {
	for _, n := range j {
		if n.Type == flag {
			return n.FD
		}
	}
	return -1
}

// openNamespaces opens what the spec joins by path. Each descriptor is proved
// to be a namespace of its kind. A sysctl in a namespace that turns out to be
// the host's is refused: /proc/1/ns/net is a path like any other.
func openNamespaces(s *specs.Spec) (j joined, err error) {
	defer func() {
		if err != nil {
			j.close()
			j = nil
		}
	}()
	for _, t := range joinOrder {
		n, ok := namespace(s, t)
		if !ok || n.Path == "" {
			continue
		}
		k := nsFlags[t]
		fd, err := pathsafe.OpenNamespace(n.Path, k.flag)
		if err != nil {
			return j, fmt.Errorf("linux.namespaces (%s): %w", t, err)
		}
		j = append(j, exec.Namespace{Type: k.flag, FD: fd, Name: k.file})
		own, err := isOwn(fd, k.file)
		if err != nil {
			return j, fmt.Errorf("linux.namespaces (%s): %w", t, err)
		}
		if own {
			if err := refuseHost(s, t, k.flag); err != nil {
				return j, err
			}
		}
	}
	return j.addMade(s)
}

// addMade adds the namespaces that are new and still joined like others: the
// user namespace, whose maps are written in advance, and the time namespace,
// whose offsets are.
func (j joined) addMade(s *specs.Spec) (joined, error) {
	user := j.fd(unix.CLONE_NEWUSER)
	if isNew(s, specs.UserNamespace) {
		fd, err := newUserNS(s.Linux.UIDMappings, s.Linux.GIDMappings)
		if err != nil {
			return j, err
		}
		user = fd
		j = append(j, exec.Namespace{Type: unix.CLONE_NEWUSER, FD: fd, Name: "user"})
	}
	if isNew(s, specs.TimeNamespace) {
		fd, err := newTimeNS(s.Linux.TimeOffsets, user)
		if err != nil {
			return j, err
		}
		j = append(joined{{Type: unix.CLONE_NEWTIME, FD: fd, Name: "time"}}, j...)
	}
	return j, nil
}

// refuseHost names what would change the host through a joined namespace.
func refuseHost(s *specs.Spec, t specs.LinuxNamespaceType, flag int) error {
	for key := range s.Linux.Sysctl {
		if sc, err := pathsafe.ParseSysctl(key); err == nil && sc.Namespace() == flag {
			return invalid(fmt.Sprintf("linux.sysctl (%s)", key), "the %s namespace joined by path is the host's", t)
		}
	}
	if t == specs.UTSNamespace && s.Hostname != "" {
		return invalid("hostname", "the uts namespace joined by path is the host's")
	}
	if t == specs.MountNamespace || t == specs.UserNamespace {
		return invalid(fmt.Sprintf("linux.namespaces (%s)", t), "the namespace joined by path is the host's")
	}
	return nil
}

// newFlags are the CLONE_NEW* flags of the namespaces that the container's first
// process makes.
func newFlags(s *specs.Spec) (flags int) {
	for t, k := range nsFlags {
		if isNew(s, t) && t != specs.UserNamespace && t != specs.TimeNamespace {
			flags |= k.flag
		}
	}
	return flags
}
