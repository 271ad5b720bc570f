package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A seccomp agent answers for the system calls that a profile hands over
// (SCMP_ACT_NOTIFY). It listens at a unix socket and gets, for each process that
// starts, the listener and a document about the process: runtime-spec,
// config-linux.md, "The Container Process State".

// connectAgent connects to the agent, -1 if the profile has none. It comes before
// the process: without its agent it would hang.
func (c *Container) connectAgent() (int, error) {
	if c.seccomp == nil || !c.seccomp.NeedsListener {
		return -1, nil
	}
	if !path.IsAbs(c.seccomp.Listener) {
		return -1, invalid("linux.seccomp.listenerPath", "%q is not absolute", c.seccomp.Listener)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: c.seccomp.Listener}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("linux.seccomp.listenerPath: connect to the seccomp agent at %s: %w", c.seccomp.Listener, err)
	}
	return fd, nil
}

// tellAgent makes what package exec calls with a listener.
func (c *Container) tellAgent(agent int, status specs.ContainerState) func(fd, pid int) error {
	if agent < 0 {
		return nil
	}
	return func(fd, pid int) error {
		data, err := json.Marshal(specs.ContainerProcessState{
			Version: specs.Version, Fds: []string{specs.SeccompFdName}, Pid: pid,
			Metadata: c.seccomp.ListenerMetadata, State: *c.ociState(status, c.pidOr(pid)),
		})
		if err != nil {
			return err
		}
		n, err := unix.SendmsgN(agent, data, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
		if err == nil && n != len(data) {
			err = errors.New("short message")
		}
		if err != nil {
			return fmt.Errorf("send the listener to the seccomp agent at %s: %w", c.seccomp.Listener, err)
		}
		return nil
	}
}

// pidOr is the first process's PID, or pid while it is being made.
func (c *Container) pidOr(pid int) int {
	if own := c.init.PID(); own != 0 {
		return own
	}
	return pid
}

func closeAgent(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
