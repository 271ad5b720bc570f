package exec_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// fixture is what a start needs of the host.
type fixture struct {
	t    *testing.T
	proc *pathsafe.Proc
	null *os.File
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	proc, err := pathsafe.OpenProc(true)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close(); null.Close() })
	return &fixture{t, proc, null}
}

// process runs argv as root with every capability that we have.
func (f *fixture) process(argv ...string) *exec.Process {
	all := exec.Held()
	fd := int(f.null.Fd())
	return &exec.Process{
		Args: argv, Path: argv[0], Env: []string{"PATH=/bin:/usr/bin"},
		Caps:  exec.Caps{Bounding: all, Effective: all, Permitted: all},
		Stdio: [3]int{fd, fd, fd}, NoNewPrivs: true,
	}
}

func (f *fixture) place() *exec.Place {
	return &exec.Place{Proc: f.proc.FD(), JoinOf: -1, CgroupInto: -1}
}

// output runs s and returns what it writes, and how it ended.
func (f *fixture) output(s *exec.Start) (string, exec.Status) {
	f.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	s.Process.Stdio[1], s.Process.Stdio[2] = int(w.Fd()), int(w.Fd())
	c, err := exec.Run(context.Background(), s)
	w.Close()
	if err != nil {
		f.t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	return string(out), c.Status()
}

const newNamespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

func TestAProcessRunsAndItsExitIsKnown(t *testing.T) {
	f := newFixture(t)
	for _, tt := range []struct {
		script string
		code   int
	}{{"exit 0", 0}, {"exit 42", 42}, {"kill -TERM $$", 128 + 15}, {"kill -KILL $$", 128 + 9}} {
		c, err := exec.Run(context.Background(), &exec.Start{Process: f.process("/bin/sh", "-c", tt.script), Place: f.place()})
		if err != nil {
			t.Fatal(err)
		}
		if st := c.Status(); st.Code != tt.code {
			t.Errorf("%s: code %d, want %d", tt.script, st.Code, tt.code)
		}
		if err := c.Signal(unix.SIGTERM); !errors.Is(err, unix.ESRCH) {
			t.Errorf("signal after the end: %v, want ESRCH", err)
		}
	}
}

func TestAnInitIsProcessOneAndAnExecJoinsIt(t *testing.T) {
	f := newFixture(t)
	p := f.place()
	p.New = newNamespaces
	init, err := exec.Run(context.Background(), &exec.Start{Process: f.process("/bin/sleep", "1000"), Place: p})
	if err != nil {
		t.Fatal(err)
	}
	defer init.Abort()
	at := f.join(init)
	var pids []int
	for range 3 {
		c, err := exec.Run(context.Background(), &exec.Start{Process: f.process("/bin/sh", "-c", "exit $$"), Place: at})
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, c.Status().Code)
	}
	if pids[0] < 2 || pids[0] > 9 || pids[1] != pids[0]+1 || pids[2] != pids[0]+2 {
		t.Errorf("PIDs inside: %v, want small ones in a row", pids)
	}
}

// join is the place beside init.
func (f *fixture) join(init *exec.Child) *exec.Place {
	f.t.Helper()
	fd, err := init.Pidfd()
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { unix.Close(fd) })
	at := f.place()
	at.JoinOf, at.JoinMask = fd, newNamespaces
	return at
}

func TestHoldWaitsForThePathname(t *testing.T) {
	f := newFixture(t)
	for _, joins := range []bool{false, true} {
		at := f.place()
		if joins {
			init := f.place()
			init.New = newNamespaces
			c, err := exec.Run(context.Background(), &exec.Start{Process: f.process("/bin/sleep", "1000"), Place: init})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			at = f.join(c)
		}
		p := f.process("false")
		p.Path = ""
		c, err := exec.Run(context.Background(), &exec.Start{Process: p, Place: at, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.Done():
			t.Fatal("ended while it should wait")
		default:
		}
		if err := c.Release(context.Background(), "/bin/true"); err != nil {
			t.Fatal(err)
		}
		if st := c.Status(); st.Code != 0 {
			t.Errorf("code %d", st.Code)
		}
	}
}

func TestAFailedExecveNamesTheStepAndLeavesNothing(t *testing.T) {
	f := newFixture(t)
	_, err := exec.Run(context.Background(), &exec.Start{Process: f.process("/no/such/program"), Place: f.place()})
	if !errors.Is(err, unix.ENOENT) || !exec.IsExecve(err) || !strings.Contains(err.Error(), "/no/such/program") {
		t.Fatalf("got %v", err)
	}
}

func TestNothingButStdioIsInherited(t *testing.T) {
	f := newFixture(t)
	for range 5 { // descriptors without close-on-exec, scattered
		fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, fd+7)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		defer unix.Close(n)
	}
	out, _ := f.output(&exec.Start{Process: f.process("/bin/sh", "-c", "echo /proc/self/fd/*"), Place: f.place()})
	// The shell has 0 to 2 and the directory it reads.
	if got := strings.Fields(out); len(got) > 4 {
		t.Errorf("descriptors: %s", out)
	}
}

func TestCredentialsAreExactlyThoseAskedFor(t *testing.T) {
	f := newFixture(t)
	const chown, kill, bind = 1 << 0, 1 << 5, 1 << 10
	for _, tt := range []struct {
		name string
		set  func(p *exec.Process)
		want []string
	}{
		{
			"root without capabilities", func(p *exec.Process) { p.Caps = exec.Caps{} },
			[]string{"Uid:\t0\t0\t0\t0", "Groups:\t ", "CapInh:\t0000000000000000", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"},
		},
		{"a user with ambient capabilities", func(p *exec.Process) {
			p.UID, p.GID, p.Groups = 1000, 1001, []uint32{5, 7}
			p.Caps = exec.Caps{Bounding: chown | kill | bind, Effective: kill | bind, Permitted: kill | bind, Inheritable: bind, Ambient: bind}
		}, []string{
			"Uid:\t1000\t1000\t1000\t1000", "Gid:\t1001\t1001\t1001\t1001", "Groups:\t5 7 ",
			"CapInh:\t0000000000000400", "CapPrm:\t0000000000000400", "CapEff:\t0000000000000400", "CapBnd:\t0000000000000421", "CapAmb:\t0000000000000400",
		}},
		{
			"new privileges allowed", func(p *exec.Process) { p.NoNewPrivs = false; p.Caps = exec.Caps{Bounding: kill} },
			[]string{"CapBnd:\t0000000000000020", "CapEff:\t0000000000000020", "NoNewPrivs:\t0"},
		},
		{"the largest ids", func(p *exec.Process) { p.UID, p.GID = 1<<32-2, 1<<32-2 }, []string{"Uid:\t4294967294\t4294967294"}},
		{"umask", func(p *exec.Process) { p.Umask = 0o137 }, []string{"Umask:\t0137"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := f.process("/bin/cat", "/proc/self/status")
			tt.set(p)
			out, _ := f.output(&exec.Start{Process: p, Place: f.place()})
			for _, w := range tt.want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
		})
	}
}

func TestLimitsAreAppliedLastAndFilledIn(t *testing.T) {
	f := newFixture(t)
	p := f.process("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn")
	p.Rlimits = []exec.Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 4, Max: 5}, {Resource: unix.RLIMIT_CORE, Soft: 0, Max: 0}}
	if out, _ := f.output(&exec.Start{Process: p, Place: f.place()}); out != "4\n5\n" {
		t.Errorf("with a limit: %q", out)
	}
	p.Rlimits = nil
	out, _ := f.output(&exec.Start{Process: p, Place: f.place()})
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	if out == "" {
		t.Errorf("without a limit: %q", out)
	}
}

func TestAHungChildEndsWithItsContext(t *testing.T) {
	f := newFixture(t)
	p := f.process("/bin/true")
	p.Path = ""
	ctx, cancel := context.WithCancel(context.Background())
	c, err := exec.Run(ctx, &exec.Start{Process: p, Place: f.place(), Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := c.Release(ctx, "/bin/true"); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	<-c.Done()
}

func TestEnvironmentAndArgumentsArriveAsGiven(t *testing.T) {
	f := newFixture(t)
	p := f.process("/usr/bin/env", "-0")
	big := strings.Repeat("x", 100<<10)
	p.Env = []string{"A=1", "A=2", "NL=a\nb", "BIG=" + big}
	out, _ := f.output(&exec.Start{Process: p, Place: f.place()})
	if !bytes.Equal([]byte(out), []byte("A=1\x00A=2\x00NL=a\nb\x00BIG="+big+"\x00")) {
		t.Errorf("got %d bytes", len(out))
	}
}
