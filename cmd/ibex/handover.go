package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// handOver is what a caller wants to have of a new process.
type handOver struct{ console, pidFile, pidfd string }

func (h *handOver) add(fl *pflag.FlagSet) {
	fl.StringVar(&h.console, "console-socket", "", "unix socket that gets the terminal's master side")
	fl.StringVar(&h.pidFile, "pid-file", "", "file for the process's PID")
	fl.StringVar(&h.pidfd, "pidfd-socket", "", "unix socket that gets a pidfd of the process")
}

// checkConsole: the master side of a terminal has to go somewhere.
func (h *handOver) checkConsole(terminal, detached bool) error {
	switch {
	case detached && terminal && h.console == "":
		return errors.New("cannot allocate tty if detached without --console-socket")
	case !(detached && terminal) && h.console != "":
		return errors.New("--console-socket: only for a process with a terminal that is detached")
	}
	return nil
}

// give hands over what was asked for.
func (h *handOver) give(p *container.Process) error {
	if m := p.Console(); m != nil && h.console != "" {
		// The name goes along as data, as receivers expect.
		if err := sendFD(h.console, int(m.Fd()), m.Name()); err != nil {
			return fmt.Errorf("--console-socket %s: %w", h.console, err)
		}
	}
	if h.pidfd != "" {
		fd, err := p.Pidfd()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := sendFD(h.pidfd, fd, "pidfd"); err != nil {
			return fmt.Errorf("--pidfd-socket %s: %w", h.pidfd, err)
		}
	}
	if h.pidFile != "" {
		return writePID(h.pidFile, p.PID())
	}
	return nil
}

// writePID writes the file in one step: who sees it sees the number.
func writePID(name string, pid int) error {
	tmp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// sendFD sends a descriptor over a unix socket.
func sendFD(socket string, fd int, data string) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: socket}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(s, []byte(data), unix.UnixRights(fd), nil, 0))
}

// extraFDs are the descriptors that the process gets from 3 on: those of socket
// activation (sd_listen_fds(3)), if they are meant for us, and then more.
func extraFDs(preserve int, activation bool) (fds []int, env []string, err error) {
	if preserve < 0 {
		return nil, nil, fmt.Errorf("--preserve-fds %d: less than none", preserve)
	}
	n := preserve
	if activation && os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		listen, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
		if err != nil || listen < 0 {
			return nil, nil, fmt.Errorf("LISTEN_FDS=%q: not a number of descriptors", os.Getenv("LISTEN_FDS"))
		}
		if listen > 0 {
			env = []string{"LISTEN_FDS=" + strconv.Itoa(listen), "LISTEN_PID=1"}
		}
		n += listen
	}
	for fd := 3; fd < 3+n; fd++ {
		// What we opened ourselves is close-on-exec; what we were given is not, or
		// it would not be here.
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			return nil, nil, fmt.Errorf("--preserve-fds, LISTEN_FDS: descriptor %d is not open", fd)
		}
		fds = append(fds, fd)
	}
	return fds, env, nil
}
