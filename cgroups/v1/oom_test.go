package cgroup1

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
)

// eater doubles a string until the kernel kills it, once it has been told to.
const eater = `read x; x=0123456789abcdef; while :; do x="$x$x"; done`

func TestAnOOMKillIsCountedAndNotified(t *testing.T) {
	for _, tt := range []struct {
		name     string
		onParent bool
	}{{"own limit", false}, {"limit of the parent", true}} {
		t.Run(tt.name, func(t *testing.T) {
			limit := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](16 << 20), Swap: ptr[int64](16 << 20)}}
			p := newPath(t, "parent")
			var parentRes, ownRes *specs.LinuxResources
			if tt.onParent {
				parentRes = limit
			} else {
				ownRes = limit
			}
			createAt(t, p, parentRes)
			g := createAt(t, parsePath(t, p.Rel().String()+"/own"), ownRes)
			fd, err := g.OOMFD()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := g.OOMFD(); again != fd || err != nil {
				t.Errorf("the second OOMFD is %d, %v; the first was %d", again, err, fd)
			}
			if n, err := g.OOMKills(); n != 0 || err != nil {
				t.Fatalf("before: %d kills, %v", n, err)
			}
			if readable(t, fd, 0) {
				t.Error("the descriptor is readable before anything happened")
			}
			killed(t, g)
			if !readable(t, fd, 5000) {
				t.Error("no notification")
			}
			if n, err := g.OOMKills(); n != 1 || err != nil {
				t.Errorf("%d kills, %v; want 1", n, err)
			}
			want := "/" + g.path.Rel().String()
			if tt.onParent {
				want = "/" + p.Rel().String()
			}
			if at, err := g.OOMCause(); at != want || err != nil {
				t.Errorf("the limit was that of %q, %v; want %s", at, err, want)
			}
			if readable(t, fd, 0) {
				t.Error("OOMKills did not reset the descriptor")
			}
			var s cgroups.Stats
			if err := g.Stat(&s); err != nil || s.OOMKills() != 1 {
				t.Errorf("statistics say %d kills, %v; want 1", s.OOMKills(), err)
			}
			if err := g.Delete(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			if !readable(t, fd, 5000) {
				t.Error("the removal was not notified")
			}
			if _, err := g.OOMKills(); !errors.Is(err, cgroups.ErrGone) {
				t.Errorf("OOMKills of a removed group = %v, want ErrGone", err)
			}
		})
	}
}

// killed runs a process in g until it is OOM-killed.
func killed(t *testing.T, g *Group) {
	t.Helper()
	cmd := exec.Command("sh", "-c", eater)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	join(t, g, cmd.Process.Pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the process ended with %v, want an OOM kill", err)
	}
}

func readable(t *testing.T, fd, ms int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, ms)
		if err == nil {
			return n > 0
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}
