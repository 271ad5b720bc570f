package pathsafe

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A25, I9: the counts and the time, on a clock of the test's own.
func TestRetriesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy Policy
		errno  unix.Errno
		fails  int
		step   time.Duration // per look at the clock
		want   bool          // the lookup succeeds in the end
	}{
		{"127 times", PolicyRootfs, unix.EAGAIN, 127, 0, true},
		{"128 times", PolicyRootfs, unix.EAGAIN, 128, 0, true},
		{"129 times", PolicyRootfs, unix.EAGAIN, 129, 0, false},
		{"strict 127 times", PolicyRootfsStrict, unix.EAGAIN, 127, 0, true},
		{"slowly", PolicyRootfs, unix.EAGAIN, 3, time.Millisecond, false},
		{"EXDEV", PolicyRootfs, unix.EXDEV, 1, 0, false},
		{"ELOOP", PolicyRootfs, unix.ELOOP, 1, 0, false},
		{"cgroup", PolicyKernfs, unix.EAGAIN, 1, 0, false},
		{"procfs", PolicyProc, unix.EAGAIN, 1, 0, false},
		{"state", PolicyState, unix.EAGAIN, 1, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			clock := func() time.Time { now = now.Add(tt.step); return now }
			r := retry{policy: tt.policy}
			ok := true
			for range tt.fails {
				if ok = r.again(tt.errno, clock); !ok {
					break
				}
			}
			if ok != tt.want {
				t.Errorf("success: %v", ok)
			}
		})
	}
}

// A25, with the kernel's call in the loop.
func TestALookupThatAlwaysFailsEnds(t *testing.T) {
	r, _ := root(t, "dir a")
	calls := 0
	mu := gate(t, func(int, int) verdict { calls++; return fail(unix.EAGAIN) }, unix.SYS_OPENAT2)
	_, err := r.Resolve(inRoot(t, "a"), KindDir)
	wantErr(t, err, ErrRaced, unix.EAGAIN)
	mu.Lock()
	defer mu.Unlock()
	if calls < 2 || calls > maxRetries+1 {
		t.Errorf("%d calls", calls)
	}
}

// A25, elsewhere the first EAGAIN is the answer. A26: EINTR is not.
func TestInterruptionsAreRetriedAndNothingElse(t *testing.T) {
	s, _ := stateDir(t, "dir d", "file f abc")
	r, _ := root(t, "dir a")
	calls, script := 0, []unix.Errno(nil)
	mu := gate(t, func(int, int) verdict {
		calls++
		if len(script) == 0 {
			return pass
		}
		v := fail(script[0])
		script = script[1:]
		return v
	}, unix.SYS_OPENAT2, unix.SYS_STATX, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_FSTATFS)
	answer := func(errno unix.Errno, n int) {
		mu.Lock()
		defer mu.Unlock()
		calls, script = 0, slices.Repeat([]unix.Errno{errno}, n)
	}
	made := func() int {
		mu.Lock()
		defer mu.Unlock()
		return calls
	}

	answer(unix.EAGAIN, 1)
	_, err := s.openFile(s.FD(), MustName("f").c, unix.O_RDONLY)
	wantErr(t, err, unix.EAGAIN)
	if errors.Is(err, ErrRaced) {
		t.Error("taken for a race")
	}
	answer(unix.EINTR, 10)
	buf := make([]byte, 8)
	if n, err := s.Read(MustName("f"), buf); err != nil || n != 3 {
		t.Errorf("%d, %v", n, err)
	}
	answer(unix.EINTR, 10)
	must(t, s.Write(MustName("f"), []byte("xyz")))
	answer(unix.EINTR, 10)
	target, err := r.Resolve(inRoot(t, "a"), KindDir)
	must(t, err)
	must(t, target.Close())
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.ENOMEM, unix.EMFILE, unix.EACCES} {
		answer(errno, 1)
		_, err := r.Resolve(inRoot(t, "a"), KindDir)
		wantErr(t, err, errno)
		if made() != 1 || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrEscape) {
			t.Errorf("%v: %d calls, %v", errno, made(), err)
		}
	}
	for _, errno := range []unix.Errno{unix.EXDEV, unix.ELOOP} {
		answer(errno, 1)
		_, err := r.Resolve(inRoot(t, "a"), KindDir)
		wantErr(t, err, ErrEscape, errno)
		if made() != 1 {
			t.Errorf("%v: %d calls", errno, made())
		}
	}
}

// Without openat2 there is nothing, and the message says so.
func TestProbeRefusesAKernelWithoutOpenat2(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			out := runChild(t, "probe-"+strconv.Itoa(int(errno)), nil)
			for _, want := range []string{"openat2", "5.14", "kernel lacks"} {
				if !strings.Contains(out, want) {
					t.Errorf("message lacks %q: %s", want, out)
				}
			}
		})
	}
	out := runChild(t, "probe-many", nil)
	for _, want := range []string{"openat2", "move_mount", "close_range", "mount_setattr", "clone3", "pidfd_send_signal", "fsopen", "statx"} {
		if !strings.Contains(out, want) {
			t.Errorf("message lacks %q: %s", want, out)
		}
	}
	if strings.Count(out, "\n") != 1 {
		t.Errorf("not one line: %q", out)
	}
}

// A46, I8: after a good probe, a filter takes openat2 away. Then it fails with
// that errno, and no other way of opening is tried: a second filter kills on any.
// A read that is permitted by fstatfs goes on.
func TestNoOtherOpenIsTriedWithoutOpenat2(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EINVAL} {
		runChild(t, "late-"+strconv.Itoa(int(errno)), nil)
	}
}

func probeUnder(errno unix.Errno, nrs ...int) func() error {
	return func() error {
		runtime.LockOSThread()
		if _, err := seccompFilter(0, unix.SECCOMP_RET_ERRNO|uint32(errno), nrs...); err != nil {
			return err
		}
		for range 2 { // also when it is remembered
			_, err := Probe()
			var u *UnsupportedError
			if !errors.As(err, &u) || !errors.Is(err, ErrUnsupported) {
				return fmt.Errorf("probe under %w: %w", errno, err)
			}
		}
		_, err := Probe()
		fmt.Println(err)
		return nil
	}
}

func lateUnder(errno unix.Errno) func() error {
	return func() error {
		runtime.LockOSThread()
		if _, err := Probe(); err != nil {
			return err
		}
		mounts, err := MountInfo()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(mounts, func(m MountInfoEntry) bool { return m.FSType == "cgroup" || m.FSType == "cgroup2" })
		if i < 0 {
			return errors.New("no cgroup hierarchy is mounted here")
		}
		h, err := OpenHierarchy(mounts[i])
		if err != nil {
			return err
		}
		r, err := OpenRootfs("/")
		if err != nil {
			return err
		}
		p, err := OpenProc(true)
		if err != nil {
			return err
		}
		if _, err := seccompFilter(0, unix.SECCOMP_RET_ERRNO|uint32(errno), unix.SYS_OPENAT2); err != nil {
			return err
		}
		f, err := h.OpenRead(cgroupProcs)
		if err != nil {
			return fmt.Errorf("permitted read: %w", err)
		}
		if _, err := f.ReadAt0(make([]byte, 1<<20)); err != nil {
			return fmt.Errorf("permitted read: %w", err)
		}
		if _, err := seccompFilter(0, unix.SECCOMP_RET_KILL_PROCESS, openCalls...); err != nil {
			return err
		}
		path, err := ParseInRoot("/etc")
		if err != nil {
			return err
		}
		for name, err := range map[string]error{
			"read":    second(h.Read(cgroupProcs, nil)),
			"write":   h.Write(cgroupProcs, []byte("x")),
			"sub":     second(h.Sub(MustRel("x"))),
			"list":    second(h.List(1)),
			"resolve": second(r.Resolve(path, KindDir)),
			"procfs":  second(p.Self(MustRel("status"))),
			"state":   second(OpenState("/etc")),
			"rootfs":  second(OpenRootfs("/etc")),
			"source":  third(OpenSource("/etc")),
		} {
			if !errors.Is(err, errno) || errors.Is(err, ErrUnsupported) {
				return fmt.Errorf("%s under %w: %w", name, errno, err)
			}
		}
		return nil
	}
}

func init() {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EINVAL} {
		children["probe-"+strconv.Itoa(int(errno))] = probeUnder(errno, unix.SYS_OPENAT2)
		children["late-"+strconv.Itoa(int(errno))] = lateUnder(errno)
	}
	children["probe-many"] = probeUnder(unix.ENOSYS, unix.SYS_OPENAT2, unix.SYS_FSOPEN, unix.SYS_MOVE_MOUNT,
		unix.SYS_MOUNT_SETATTR, unix.SYS_CLOSE_RANGE, unix.SYS_CLONE3, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_STATX)
	children["low-fds"] = lowFDs
	children["nofile"] = noFiles
}

// I3: the flags of every open.
func TestEveryOpenHasTheSafeFlags(t *testing.T) {
	for _, flags := range []uint64{
		unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL,
		unix.O_PATH, unix.O_PATH | unix.O_DIRECTORY, unix.O_RDONLY | unix.O_DIRECTORY,
	} {
		got := openFlags(flags)
		isPath, isDir := flags&unix.O_PATH != 0, flags&unix.O_DIRECTORY != 0
		if got&unix.O_CLOEXEC == 0 || (got&unix.O_NOCTTY == 0) != isPath || (got&unix.O_NONBLOCK == 0) != (isPath || isDir) {
			t.Errorf("%#x became %#x", flags, got)
		}
	}
	for _, p := range []Policy{PolicyKernfs, PolicyProc, PolicyState, PolicyRootfs, PolicyRootfsStrict, 200} {
		r := p.resolve()
		if r&unix.RESOLVE_NO_MAGICLINKS == 0 || r&(unix.RESOLVE_BENEATH|unix.RESOLVE_IN_ROOT) == 0 {
			t.Errorf("%v: %#x", p, r)
		}
	}
	s, dir := stateDir(t, "file f x")
	f, err := s.OpenRead(MustName("f"))
	must(t, err)
	defer f.Close()
	if fl, _ := unix.FcntlInt(uintptr(f.FD()), unix.F_GETFL, 0); fl&unix.O_NONBLOCK == 0 {
		t.Errorf("%s: flags %#x", dir, fl)
	}
}

// A50: what cannot be opened is refused when it is prepared, and Do does what
// was prepared.
func TestRawOpen(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, _ := group(t, h)
	r, err := PrepareRaw(g, MustRel("pids.max"), unix.O_RDONLY)
	must(t, err)
	if r.How.Resolve != PolicyKernfs.resolve() || r.How.Flags&unix.O_CLOEXEC == 0 || r.Dirfd != int32(g.FD()) {
		t.Errorf("%+v", r)
	}
	n, errno := r.Do()
	if errno != 0 {
		t.Fatal(unix.Errno(errno))
	}
	_ = unix.Close(int(n))
	if got := testing.AllocsPerRun(100, func() {
		n, _ := r.Do()
		_ = unix.Close(int(n))
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
	r, err = PrepareRaw(g, MustRel("missing"), unix.O_WRONLY)
	must(t, err)
	if _, errno := r.Do(); unix.Errno(errno) != unix.ENOENT {
		t.Error(unix.Errno(errno))
	}
	must(t, g.Close())
	_, err = PrepareRaw(g, MustRel("pids.max"), unix.O_RDONLY)
	wantErr(t, err, ErrClosed)
	_, err = PrepareRaw(&Dir{}, MustRel("pids.max"), unix.O_RDONLY)
	wantErr(t, err, ErrClosed)
}
