package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	osexec "os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process with CAP_SYS_PTRACE in a container can take the end of the handshake
// socket out of a process that is about to become an exec (pidfd_getfd(2)), and
// then says what it likes. These tests are that process.

// compromised is a start whose child is in the hands of the test.
func compromised(t *testing.T, s *Start, messages ...[]byte) (*Child, error) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if _, err := unix.Write(pair[1], m); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { unix.Close(pair[1]) })
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c := &Child{sock: os.NewFile(uintptr(pair[0]), "handshake"), start: s, done: make(chan struct{})}
	c.helper = &helper{pidfd: -1}
	children.begin()
	return c, c.handshake(ctx)
}

func pidMessage(pid uint64) []byte { return binary.NativeEndian.AppendUint64(nil, pid) }

// stranger is a process that is not our child.
func stranger(t *testing.T) int {
	t.Helper()
	out, err := osexec.Command("/bin/sh", "-c", "sleep 1000 >&- 2>&- & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(out)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	return pid
}

func TestAReportedPIDThatIsNoChildIsNeverSignalled(t *testing.T) {
	pid := stranger(t)
	for name, reported := range map[string]uint64{
		"a stranger": uint64(pid), "truncated to a stranger": 1<<32 | uint64(pid), "init": 1, "nobody": 0,
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := compromised(t, &Start{}, pidMessage(reported)); err == nil || c.PID != 0 {
				t.Errorf("accepted as PID %d: %v", c.PID, err)
			}
		})
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the stranger: %v", err)
	}
	// What would be everybody is never tried on the way that kills.
	if _, err := children.unknown(^uint64(0)); err == nil {
		t.Error("-1 is taken for a child")
	}
}

func TestTheKnownChildOfAnotherStartIsNotTakenOver(t *testing.T) {
	cmd := osexec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	pid := cmd.Process.Pid
	children.mu.Lock()
	if children.helpers == nil {
		children.helpers = map[int]*helper{}
	}
	children.helpers[pid] = &helper{pid: pid, pidfd: -1}
	children.mu.Unlock()
	defer func() {
		children.mu.Lock()
		delete(children.helpers, pid)
		children.mu.Unlock()
	}()
	if c, err := compromised(t, &Start{}, pidMessage(uint64(pid))); err == nil || c.PID != 0 {
		t.Errorf("accepted: %v", err)
	}
}

func TestASecondPIDDoesNotReplaceTheFirst(t *testing.T) {
	cmd := osexec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	other := stranger(t)
	c, err := compromised(t, &Start{}, pidMessage(uint64(cmd.Process.Pid)), pidMessage(uint64(other)))
	if err == nil || c.PID != cmd.Process.Pid {
		t.Errorf("PID %d, error %v", c.PID, err)
	}
	c.Abort()
	if err := unix.Kill(other, 0); err != nil {
		t.Errorf("the stranger: %v", err)
	}
}

func TestMessagesOutOfTurnEndAStart(t *testing.T) {
	for name, m := range map[string][]byte{
		"a pause that nobody asked for": []byte(pauseMsg), "ready, without hold": []byte(readyMsg), "nonsense": make([]byte, 40),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := compromised(t, &Start{}, m); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAPauseComesOnce(t *testing.T) {
	cmd := osexec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	n := 0
	s := &Start{Pause: func(*Child) error { n++; return nil }}
	c, err := compromised(t, s, pidMessage(uint64(cmd.Process.Pid)), []byte(pauseMsg), []byte(pauseMsg))
	if err == nil || errors.Is(err, context.DeadlineExceeded) || n > 1 {
		t.Errorf("paused %d times: %v", n, err)
	}
	c.Abort()
}
