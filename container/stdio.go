package container

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
)

// stdio gives ep its descriptors: a terminal's, or the files of io, which get
// ep's user as owner so that it can open them again (/dev/stdout).
func (p *Process) stdio(ep *exec.Process, io Stdio) (*rootfs.PTY, error) {
	ep.Extra = io.Extra
	if ep.Terminal {
		pty, err := p.c.newPTY()
		if err != nil {
			return nil, err
		}
		return pty, p.c.useTerminal(ep, pty)
	}
	return nil, p.c.usePipes(ep, io)
}

func (c *Container) useTerminal(ep *exec.Process, pty *rootfs.PTY) error {
	ep.Stdio = [3]int{pty.Replica, pty.Replica, pty.Replica}
	uid, _ := c.ids().HostUID(ep.UID) // mapped, see checkMapped
	if uid == 0 {
		return nil
	}
	// Our own terminal, by descriptor: nothing else can be reached by it.
	return os.NewSyscallError("fchown", unix.Fchown(pty.Replica, int(uid), -1))
}

func (c *Container) usePipes(ep *exec.Process, io Stdio) error {
	h, err := host()
	if err != nil {
		return err
	}
	uid, _ := c.ids().HostUID(ep.UID) // mapped, see checkMapped
	for i, f := range []*os.File{io.Stdin, io.Stdout, io.Stderr} {
		if f == nil {
			ep.Stdio[i] = h.null
			continue
		}
		ep.Stdio[i] = int(f.Fd())
		if err := giveTo(ep.Stdio[i], uid); err != nil {
			return err
		}
	}
	return nil
}

// pipefsMagic: PIPEFS_MAGIC, <linux/magic.h>. x/sys has it, too; named here for
// the reason: an anonymous pipe is ours, a file or a device may be anyone's.
const pipefsMagic = unix.PIPEFS_MAGIC

// giveTo makes uid the owner of an anonymous pipe. Anything else is left alone:
// the host's /dev/null must never change hands (CVE-2026-88265).
func giveTo(fd int, uid uint32) error {
	if uid == 0 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if fs.Type != pipefsMagic {
		return nil
	}
	return os.NewSyscallError("fchown", unix.Fchown(fd, int(uid), -1))
}
