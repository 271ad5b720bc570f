package plan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// failing appends a step that fails with e, for any e.
func failing(b *Builder, e unix.Errno) {
	buf := b.NewBuf(8)
	b.ExpectByte(buf, 0, 1, e)
}

func TestResultsDecideWhereThePlanGoes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(b *Builder, l Label) // the step; l leads to exit 2, the next step is exit 1
		code  int                       // 127: see step and errno
		step  uint32
		errno unix.Errno
	}{
		{name: "success goes on", build: func(b *Builder, _ Label) { b.Umask(0) }, code: 1},
		{name: "an error fails", build: func(b *Builder, _ Label) { b.Chdir("/nonexistent") }, code: 127, errno: unix.ENOENT},
		{name: "a tolerated error goes on", build: func(b *Builder, _ Label) {
			b.Chdir("/nonexistent")
			b.Tolerate(unix.EIO, unix.EPERM, unix.EXDEV, unix.ENOENT)
		}, code: 1},
		{name: "another error fails in spite of Tolerate", build: func(b *Builder, _ Label) {
			b.Chdir("/nonexistent")
			b.Tolerate(unix.EACCES)
		}, code: 127, errno: unix.ENOENT},
		{name: "OnError jumps", build: func(b *Builder, l Label) {
			b.Chdir("/nonexistent")
			b.Tolerate(unix.EACCES)
			b.OnError(l, unix.ENOENT)
		}, code: 2},
		{name: "OnError does not jump on success", build: func(b *Builder, l Label) {
			b.Chdir("/")
			b.OnError(l, unix.ENOENT)
		}, code: 1},
		{name: "OnSuccess jumps", build: func(b *Builder, l Label) { b.Chdir("/"); b.OnSuccess(l) }, code: 2},
		{name: "OnSuccess does not jump on a tolerated error", build: func(b *Builder, l Label) {
			b.Chdir("/nonexistent")
			b.Tolerate(unix.ENOENT)
			b.OnSuccess(l)
		}, code: 1},
		{name: "OnZero jumps on zero", build: func(b *Builder, l Label) { b.Chdir("/"); b.OnZero(l) }, code: 2},
		{name: "OnZero does not jump on another result", build: func(b *Builder, l Label) { b.Getpid(); b.OnZero(l) }, code: 1},
		{name: "OnZero does not jump on an error", build: func(b *Builder, l Label) {
			b.Chdir("/nonexistent")
			b.Tolerate(unix.ENOENT)
			b.OnZero(l)
		}, code: 1},
		{name: "a wanted result goes on", build: func(b *Builder, _ Label) { b.Chdir("/"); b.Want(0) }, code: 1},
		{name: "an unwanted result is EPROTO", build: func(b *Builder, _ Label) { b.Chdir("/"); b.Want(1) }, code: 127, errno: unix.EPROTO},
		{name: "an unwanted result can be tolerated", build: func(b *Builder, _ Label) {
			b.Chdir("/")
			b.Want(1)
			b.Tolerate(unix.EPROTO)
		}, code: 1},
		{name: "an unwanted result does not count as success", build: func(b *Builder, l Label) {
			b.Chdir("/")
			b.Want(1)
			b.OnSuccess(l)
			b.OnZero(l)
		}, code: 127, errno: unix.EPROTO},
		{name: "a matching byte goes on", build: func(b *Builder, _ Label) { b.ExpectByte(b.NewBuf(1), 0, 0, unix.EXDEV) }, code: 1},
		{name: "another byte fails with the errno", build: func(b *Builder, _ Label) {
			b.ExpectByte(b.NewBuf(9), 8, '/', unix.EXDEV)
		}, code: 127, errno: unix.EXDEV},
		{name: "equal words go on", build: func(b *Builder, _ Label) {
			b.ExpectEqual64(b.NewBuf(8), 0, b.NewBuf(16), 8, unix.ESTALE)
		}, code: 1},
		{name: "a check can jump", build: func(b *Builder, l Label) {
			failing(b, unix.ESTALE)
			b.OnError(l, unix.ESTALE)
		}, code: 2},
		{name: "a slot that no step filled is no descriptor", build: func(b *Builder, _ Label) {
			s := b.Openat2(Cwd, "/nonexistent", unix.OpenHow{})
			b.Tolerate(unix.ENOENT)
			b.Fchdir(s.FD())
		}, code: 127, step: 1, errno: unix.EBADF},
		{name: "two steps may fill one slot", build: func(b *Builder, _ Label) {
			s := b.NewSlot()
			b.Openat2(Cwd, "/nonexistent", unix.OpenHow{})
			b.Into(s)
			b.Tolerate(unix.ENOENT)
			b.Openat2(Cwd, "/", unix.OpenHow{Flags: unix.O_PATH})
			b.Into(s)
			b.Fchdir(s.FD())
		}, code: 1},
		{name: "a failed execve may be tolerated", build: func(b *Builder, _ Label) {
			b.Execve("/nonexistent", []string{"x"}, nil)
			b.Tolerate(unix.ENOENT)
		}, code: 1},
		{name: "closing a closed descriptor fails", build: func(b *Builder, _ Label) {
			s := b.Openat2(Cwd, "/", unix.OpenHow{Flags: unix.O_PATH})
			b.Close(s.FD())
			b.Close(s.FD())
		}, code: 127, step: 2, errno: unix.EBADF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, msgs, p := forkWait(t, 0, func(b *Builder, _ FD) {
				l := b.NewLabel()
				tt.build(b, l)
				b.Exit(1)
				b.Place(l)
				b.Exit(2)
			})
			if code != tt.code {
				t.Errorf("exit code %d; want %d\n%s", code, tt.code, p)
			}
			if tt.code != 127 {
				if len(msgs) != 0 {
					t.Errorf("messages %q; want none", msgs)
				}
				return
			}
			if len(msgs) != 1 {
				t.Fatalf("%d messages; want one", len(msgs))
			}
			f, ok := ParseFailure(msgs[0])
			if !ok || f.Step != tt.step || unix.Errno(f.Errno) != tt.errno {
				t.Errorf("failure %+v, %v; want step %d, %v", f, ok, tt.step, tt.errno)
			}
			if err := p.Error(f); !errors.Is(err, tt.errno) {
				t.Errorf("%v does not answer errors.Is(%v)", err, tt.errno)
			}
		})
	}
}

func TestAPlanWhoseLastStepIsToleratedFailsAtItsEnd(t *testing.T) {
	code, msgs, p := forkWait(t, 0, func(b *Builder, _ FD) {
		b.Execve("/nonexistent", []string{"x"}, nil)
		b.Tolerate(unix.ENOENT)
	})
	if code != 127 || len(msgs) != 1 {
		t.Fatalf("exit code %d, %d messages", code, len(msgs))
	}
	f, _ := ParseFailure(msgs[0])
	if f.Step != 1 || unix.Errno(f.Errno) != unix.ENOEXEC || p.Error(f).Step != "end of plan" {
		t.Errorf("failure %+v, %v", f, p.Error(f))
	}
}

func TestAFailureWithoutASocketIsOnlyTheExitCode(t *testing.T) {
	b := NewBuilder()
	b.Chdir("/nonexistent")
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if code := wait(t, pid); code != 127 {
		t.Errorf("exit code %d; want 127", code)
	}
}

func TestAChildWhoseParentDiedEnds(t *testing.T) {
	// The parent's end is closed before the child gets its message.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBuilder()
	b.Close(Num(pair[0], "parents")) // a copy of the shim's end would keep it open
	b.Read(Num(pair[1], "sock"), b.NewBuf(8), 8)
	b.Want(8)
	b.Exit(77)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: pair[1]})
	unix.Close(pair[0])
	unix.Close(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	// 127, or SIGPIPE: nobody is there to read the failure.
	if code := wait(t, pid); code != 127 && code != 128+int(unix.SIGPIPE) {
		t.Errorf("exit code %d; want 127 or SIGPIPE", code)
	}
}

func TestAnInterruptedReadGoesOn(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	// signal(7): without a handler, stopping and continuing interrupts a read
	// with EINTR only if the socket has a timeout.
	if err := unix.SetsockoptTimeval(pair[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 600}); err != nil {
		t.Fatal(err)
	}
	b := NewBuilder()
	b.Close(Num(pair[0], "test"))
	buf := b.NewBuf(8)
	b.Read(Num(pair[1], "sock"), buf, 8)
	b.Want(3)
	b.WriteBuf(Num(pair[1], "sock"), buf, 3)
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: pair[1]})
	unix.Close(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	for range 3 {
		waitState(t, pid, 'S')
		unix.Kill(pid, unix.SIGSTOP)
		waitState(t, pid, 'T')
		unix.Kill(pid, unix.SIGCONT)
	}
	if _, err := unix.Write(pair[0], []byte("abc")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 8)
	n, err := unix.Read(pair[0], got)
	if err != nil || string(got[:n]) != "abc" {
		t.Errorf("read %q, %v; want abc", got[:n], err)
	}
	if code := wait(t, pid); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// waitState waits until the state of pid in /proc is the one given.
func waitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.LastIndex(string(stat), ") "); stat[i+2] == state {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("state of %d is not %c: %s", pid, state, stat)
		}
	}
}

func TestForkIsSafeFromManyGoroutinesAtAnyStackDepth(t *testing.T) {
	b := NewBuilder()
	for range 20 {
		b.Umask(0o22)
	}
	b.Exit(33)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 { // the collector and the stack shrinker get something to do
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
					_ = make([]byte, 1<<16)
				}
			}
		})
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 25 {
				if code, err := forkDeep(p, (g*25+i)*7%160); err != nil || code != 33 {
					t.Errorf("exit code %d, %v; want 33", code, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	busy.Wait()
}

//go:noinline
func forkDeep(p *Plan, depth int) (int, error) {
	var pad [100]byte
	if depth > 0 {
		code, err := forkDeep(p, depth-1)
		pad[depth%100] = byte(code)
		return int(pad[depth%100]), err
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: -1})
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, unix.WALL, nil); err != unix.EINTR {
			return ws.ExitStatus(), err
		}
	}
}

func TestForkGivesACloseOnExecPidfdOfTheChild(t *testing.T) {
	b := NewBuilder()
	b.Exit(5)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if fl, err := unix.FcntlInt(uintptr(pidfd), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
		t.Errorf("F_GETFD = %#x, %v; want FD_CLOEXEC", fl, err)
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil || !strings.Contains(string(info), fmt.Sprintf("Pid:\t%d\n", pid)) {
		t.Errorf("fdinfo = %q, %v; want Pid: %d", info, err, pid)
	}
	if code := wait(t, pid); code != 5 {
		t.Errorf("exit code %d", code)
	}
}

func TestForkRefusesWhatAChildCannotHave(t *testing.T) {
	b := NewBuilder()
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []ForkOptions{
		{Flags: unix.CLONE_VM, CgroupFD: -1, Sock: -1},
		{Flags: unix.CLONE_VFORK, CgroupFD: -1, Sock: -1},
		{Flags: unix.CLONE_PARENT, CgroupFD: -1, Sock: -1},
		{Flags: unix.CLONE_NEWNS | unix.CLONE_FS, CgroupFD: -1, Sock: -1},
	} {
		if _, _, err := p.Fork(o); !errors.Is(err, unix.EINVAL) {
			t.Errorf("Fork(%#x) = %v; want EINVAL", o.Flags, err)
		}
	}
	dir, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if _, _, err := p.Fork(ForkOptions{CgroupFD: dir, Sock: -1}); !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "clone3") {
		t.Errorf("Fork into / as a cgroup = %v; want clone3 EBADF", err)
	}
}

func TestTheChildIsBornInItsCgroup(t *testing.T) {
	var root string
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
			break
		}
	}
	if root == "" {
		t.Skip("no cgroup v2 hierarchy is mounted")
	}
	dir := root + "/ibex-test-plan"
	unix.Rmdir(dir)
	if err := unix.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made: %v", err)
	}
	defer unix.Rmdir(dir)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBuilder()
	b.Close(Num(pair[0], "test"))
	b.Read(Num(pair[1], "sock"), b.NewBuf(1), 1)
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{CgroupFD: fd, Sock: pair[1]})
	unix.Close(pair[1])
	if err != nil {
		unix.Close(pair[0])
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	procs, err := os.ReadFile(dir + "/cgroup.procs")
	if got := strings.TrimSpace(string(procs)); err != nil || got != fmt.Sprint(pid) {
		t.Errorf("cgroup.procs = %q, %v; want %d", got, err, pid)
	}
	unix.Write(pair[0], []byte("x"))
	unix.Close(pair[0])
	wait(t, pid)
	// The kernel lets go of the cgroup a moment after the process was reaped.
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := unix.Rmdir(dir)
		if err == nil || time.Now().After(deadline) {
			if err != nil {
				t.Errorf("rmdir %s: %v", dir, err)
			}
			return
		}
		runtime.Gosched()
	}
}

func TestAPlanRunsMoreThanOnce(t *testing.T) {
	b := NewBuilder()
	s := b.Openat2(Cwd, "/", unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	b.Fchdir(s.FD())
	b.Exit(3)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	before := p.Text()
	arena := append([]uint64(nil), p.arena...)
	for range 3 {
		if code, err := forkDeep(p, 0); err != nil || code != 3 {
			t.Fatalf("exit code %d, %v", code, err)
		}
	}
	for i := range arena {
		if arena[i] != p.arena[i] {
			t.Errorf("arena word %d changed in the parent", i)
		}
	}
	if p.Text() != before {
		t.Error("the plan changed")
	}
}

func TestOsExecStillWorksBesideForks(t *testing.T) {
	b := NewBuilder()
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if err := exec.Command("/bin/true").Run(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 50 {
		if code, err := forkDeep(p, 0); err != nil || code != 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
	}
	wg.Wait()
}
