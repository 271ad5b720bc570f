package pathsafe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

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
