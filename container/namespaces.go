package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// joinOrder: namespaces that are joined, in order. The PID namespace changes
// nothing for the caller itself; the mount namespace comes last because the
// setup that follows works in it.
var joinOrder = []specs.LinuxNamespaceType{
	specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.CgroupNamespace,
	specs.PIDNamespace, specs.MountNamespace,
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
	if t == specs.MountNamespace {
		return invalid("linux.namespaces (mount)", "the namespace joined by path is the host's")
	}
	return nil
}

// newFlags are the CLONE_NEW* flags of the namespaces made for the container.
func newFlags(s *specs.Spec) (flags int) {
	for t, k := range nsFlags {
		if isNew(s, t) {
			flags |= k.flag
		}
	}
	return flags
}
