package container

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// hostState is what every container of this process shares. It is opened once
// and never closed.
type hostState struct {
	proc   *pathsafe.Proc // detached, processes only
	layout *cgroups.Layout
	null   int // the host's /dev/null, checked
}

var host = sync.OnceValues(func() (*hostState, error) {
	if _, err := pathsafe.Probe(); err != nil {
		return nil, err
	}
	if err := exec.RememberLimits(); err != nil {
		return nil, err
	}
	h := &hostState{}
	var err error
	if h.proc, err = pathsafe.OpenProc(true); err != nil {
		return nil, err
	}
	if h.layout, err = cgroups.Detect(); err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w", err)
	}
	h.null, err = pathsafe.OpenDevNull()
	return h, err
})

// Setup prepares this process for running containers: it hides its memory and
// descriptors from all that cannot trace any process, checks the kernel, notes the resource limits it was started with, and, with reapOrphans, becomes
// the parent of processes whose own parent died. It is called first thing.
func Setup(reapOrphans bool) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_DUMPABLE)", err)
	}
	if _, err := host(); err != nil {
		return err
	}
	if reapOrphans {
		return exec.ReapOrphans()
	}
	return nil
}

// isOwn reports whether fd is the namespace that this process is in itself.
func isOwn(fd int, kind string) (bool, error) {
	h, err := host()
	if err != nil {
		return false, err
	}
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false, os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(self)
	own, err := h.proc.NS(self, os.Getpid(), kind)
	if err != nil {
		return false, err
	}
	defer unix.Close(own)
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	if err := unix.Fstat(own, &b); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}
