package container_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// agent takes listeners and closes them, after which the calls that they are for
// end with ENOSYS (seccomp_unotify(2)).
func agent(t *testing.T) (socket string, got chan specs.ContainerProcessState) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "agent")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = make(chan specs.ContainerProcessState, 8)
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			data, oob := make([]byte, 8192), make([]byte, 64)
			n, on, _, _, err := conn.ReadMsgUnix(data, oob)
			conn.Close()
			if err != nil || n == 0 {
				continue // connected, and nothing started
			}
			msgs, _ := unix.ParseSocketControlMessage(oob[:on])
			for i := range msgs {
				fds, _ := unix.ParseUnixRights(&msgs[i])
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
			var s specs.ContainerProcessState
			json.Unmarshal(data[:n], &s)
			got <- s
		}
	}()
	return socket, got
}

func TestAnAgentGetsTheListenerOfEveryProcess(t *testing.T) {
	const denied = "Function not implemented"
	for _, noNewPrivs := range []bool{false, true} {
		t.Run(fmt.Sprintf("no_new_privs=%v", noNewPrivs), func(t *testing.T) {
			socket, got := agent(t)
			b := newBundle(t, "sh", "-c", "busybox mkdir /tmp/a 2>/tmp/said; sleep 1000")
			b.spec.Process.NoNewPrivileges = noNewPrivs
			b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActAllow, ListenerPath: socket, ListenerMetadata: "meta",
				Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActNotify}},
			}
			made, err := b.detached()
			if err != nil {
				t.Fatal(err)
			}
			s := <-got
			if s.Pid != made.Init().PID() || s.Metadata != "meta" || s.State.ID != b.id || s.State.Pid != s.Pid || len(s.Fds) != 1 || s.Fds[0] != specs.SeccompFdName {
				t.Errorf("%+v, PID %d", s, made.Init().PID())
			}
			c := b.open()
			if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
				t.Fatal(err)
			}
			out, code, err := b.exec(c, "e", "busybox", "mkdir", "/tmp/b")
			if err != nil || code == 0 || !strings.Contains(out, denied) {
				t.Errorf("exec: exit code %d, %q, %v", code, out, err)
			}
			if s := <-got; s.State.Status != specs.StateRunning || s.State.Pid != made.Init().PID() || s.Pid == s.State.Pid {
				t.Errorf("of the exec: %+v", s)
			}
			if out, _, err := b.exec(c, "f", "cat", "/tmp/said"); err != nil || !strings.Contains(out, denied) {
				t.Errorf("of the first process: %q, %v", out, err)
			}
			if err := c.Kill(context.Background(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-made.Init().Done()
			if err := b.open().Delete(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestNothingStartsWithoutTheAgent(t *testing.T) {
	b := newBundle(t, "true")
	b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, ListenerPath: "/no/where",
		Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: specs.ActNotify}},
	}
	if _, err := b.create(container.Stdio{}); err == nil || !strings.Contains(err.Error(), "listenerPath") {
		t.Errorf("got %v", err)
	}
	b.nothingLeft()
}
