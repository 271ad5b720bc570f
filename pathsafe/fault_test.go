package pathsafe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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

// A39: with standard input, output and error closed, no descriptor takes their
// place.
func TestNoDescriptorBecomesStandardOutput(t *testing.T) { runChild(t, "low-fds", nil) }

func lowFDs() error {
	const saved = 100
	if err := unix.Dup3(2, saved, unix.O_CLOEXEC); err != nil {
		return err
	}
	// The Go runtime makes its poller when it first needs it.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	for n := range 3 {
		_ = unix.Close(n)
	}
	err = everyOpen(func(what string, n int) error {
		if n < 3 {
			return fmt.Errorf("%s: descriptor %d", what, n)
		}
		if fl, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
			return fmt.Errorf("%s: flags %#x, %w", what, fl, err)
		}
		return nil
	})
	for n := range 3 {
		if fl, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil {
			err = fmt.Errorf("descriptor %d is open, flags %#x", n, fl)
			_ = unix.Dup3(saved, 2, 0)
			return err
		}
	}
	_ = unix.Dup3(saved, 2, 0)
	return err
}

// everyOpen makes one descriptor in each way that there is, gives it to check
// and closes it. It stops at the first error.
func everyOpen(check func(what string, n int) error) (err error) {
	dir, err := os.MkdirTemp("", "ibex-test-pathsafe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(dir+"/d", 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/f", []byte("x"), 0o600); err != nil {
		return err
	}
	type opened interface {
		FD() int
		Close() error
	}
	try := func(what string, o opened, e error) {
		if e != nil {
			err = cmp.Or(err, e)
			return
		}
		err = cmp.Or(err, check(what, o.FD()))
		_ = o.Close()
	}
	s, e := OpenState(dir)
	if e != nil {
		return e
	}
	defer s.Close()
	r, e := OpenRootfs(dir)
	if e != nil {
		return e
	}
	defer r.Close()
	p, e := OpenProc(true)
	if e != nil {
		return e
	}
	defer p.Close()
	for what, d := range map[string]*Dir{"OpenState": s, "OpenRootfs": r, "OpenProc": p.Dir} {
		if err := check(what, d.FD()); err != nil {
			return err
		}
	}
	path, _ := ParseInRoot("d")
	made, _ := ParseInRoot("new/x")
	d, e := s.Sub(MustRel("d"))
	try("Sub", d, e)
	st, e := r.Strict()
	try("Strict", st, e)
	f, e := s.OpenRead(MustName("f"))
	try("OpenRead", f, e)
	f, e = s.Create(MustName("c"), 0o600)
	try("Create", f, e)
	d, _, e = s.Mkdir(MustName("m"), 0o700)
	try("Mkdir", d, e)
	d, _, e = s.MkdirAll(MustRel("m/n/o"), 0o700)
	try("MkdirAll", d, e)
	t, e := r.Resolve(path, KindDir)
	try("Resolve", t, e)
	t, e = r.MkTarget(made, KindReg, 0o600)
	try("MkTarget", t, e)
	f, e = p.Self(MustRel("status"))
	try("Self", f, e)
	pidfd, e := unix.PidfdOpen(os.Getpid(), 0)
	if e != nil {
		return e
	}
	defer unix.Close(pidfd)
	f, e = p.Pid(pidfd, os.Getpid(), MustRel("status"))
	try("Pid", f, e)
	d, e = p.Root(pidfd, os.Getpid())
	try("Root", d, e)
	raws := map[string]func() (int, error){
		"NS":            func() (int, error) { return p.NS(pidfd, os.Getpid(), "net") },
		"OpenNamespace": func() (int, error) { return OpenNamespace("/proc/self/ns/net", unix.CLONE_NEWNET) },
		"OpenSource":    func() (int, error) { n, _, err := OpenSource(dir); return n, err },
		"OpenDevNull":   OpenDevNull,
	}
	for what, open := range raws {
		if err != nil {
			return err
		}
		n, e := open()
		if err = e; err == nil {
			err = check(what, n)
			_ = unix.Close(n)
		}
	}
	if err != nil {
		return err
	}
	// And what closes again by itself.
	if _, err := s.Read(MustName("f"), make([]byte, 8)); err != nil {
		return err
	}
	if err := s.WriteFileAtomic(MustName("w"), []byte("x"), 0o600); err != nil {
		return err
	}
	if err := s.Write(MustName("w"), []byte("y")); err != nil {
		return err
	}
	if _, err := r.MkTarget(path, KindReg, 0); !errors.Is(err, ErrType) {
		return fmt.Errorf("MkTarget of a directory as a file: %w", err)
	}
	head, _ := ParseInRoot("f")
	_, err = r.ReadHead(head, make([]byte, 8))
	return err
}

// A40: with few descriptors left every call succeeds or says EMFILE, and the
// table is as before.
func TestRunningOutOfDescriptors(t *testing.T) { runChild(t, "nofile", nil) }

func noFiles() error {
	// One descriptor that stays, made before the count: see reopen.
	if err := everyOpen(func(string, int) error { return nil }); err != nil {
		return err
	}
	before := openDescriptors()
	used := 3 // the lowest free number
	for slices.Contains(before, used) {
		used++
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	failed := 0
	for k := range 13 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(used + k), Max: old.Max}); err != nil {
			return err
		}
		err := everyOpen(func(string, int) error { return nil })
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			return err
		}
		if err != nil && !errors.Is(err, unix.EMFILE) {
			return fmt.Errorf("with %d descriptors left: %w", k, err)
		}
		if err != nil {
			failed++
		}
		if after := openDescriptors(); !slices.Equal(before, after) {
			return fmt.Errorf("with %d descriptors left: open were %v, are %v", k, before, after)
		}
	}
	if failed == 0 {
		return errors.New("the limit was never reached")
	}
	return nil
}

func openDescriptors() (out []int) {
	for n := range 1024 {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// I3: the flags of every open.
func TestEveryOpenHasTheSafeFlags(t *testing.T) {
	for _, flags := range []uint64{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL,
		unix.O_PATH, unix.O_PATH | unix.O_DIRECTORY, unix.O_RDONLY | unix.O_DIRECTORY} {
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

// Every method of a closed Dir says so and asks the kernel nothing.
func TestUseAfterClose(t *testing.T) {
	s, _ := stateDir(t, "file f x")
	r, _ := root(t)
	p := openProc(t, true)
	for _, d := range []*Dir{s, r, p.Dir} {
		must(t, d.Close())
		must(t, d.Close())
	}
	n, rel, path := MustName("f"), MustRel("f"), inRoot(t, "f")
	for name, err := range map[string]error{
		"Sub": second(s.Sub(rel)), "Read": second(s.Read(n, nil)), "OpenRead": second(s.OpenRead(n)), "Write": s.Write(n, nil),
		"Create": second(s.Create(n, 0)), "WriteFileAtomic": s.WriteFileAtomic(n, nil, 0), "Mkdir": third(s.Mkdir(n, 0)),
		"MkdirAll": third(s.MkdirAll(rel, 0)), "Rmdir": s.Rmdir(n), "Unlink": s.Unlink(n), "List": second(s.List(1)),
		"ReadFile": second(s.ReadFile(n, 1)), "Resolve": second(r.Resolve(path, KindDir)), "Strict": second(r.Strict()),
		"MkTarget": second(r.MkTarget(path, KindDir, 0)), "Stat": second(r.Stat(path)), "ReadHead": second(r.ReadHead(path, nil)),
		"Self": second(p.Self(rel)), "WriteSysctl": p.WriteSysctl("kernel.sem", "1"),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, _ := hierarchy(t, "pids")
	must(t, h.Close())
	wantErr(t, h.RemoveCgroupTree(context.Background(), n), ErrClosed)
}
