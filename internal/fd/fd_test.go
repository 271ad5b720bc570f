package fd

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (int, int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return p[0], p[1]
}

func isOpen(n int) bool {
	_, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	return err == nil
}

func TestCloseClosesOnce(t *testing.T) {
	r, w := pipe(t)
	f := New(r)
	if f.Int() != r {
		t.Errorf("number %d, want %d", f.Int(), r)
	}
	if err := f.Close(); err != nil || isOpen(r) {
		t.Fatalf("%v, open: %v", err, isOpen(r))
	}
	// The number is another's now.
	if err := unix.Dup3(w, r, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil || !isOpen(r) {
		t.Errorf("second Close: %v, open: %v", err, isOpen(r))
	}
	if f.Int() != -1 || f.Disown() != -1 {
		t.Error("a closed FD gives its number")
	}
	_ = unix.Close(r)
	_ = unix.Close(w)
}

func TestDisownGivesUp(t *testing.T) {
	r, w := pipe(t)
	defer unix.Close(w)
	f := New(r)
	if n := f.Disown(); n != r {
		t.Errorf("disowned %d, want %d", n, r)
	}
	if err := f.Close(); err != nil || !isOpen(r) {
		t.Errorf("Close after Disown: %v, open: %v", err, isOpen(r))
	}
	if _, ok := f.Acquire(); ok {
		t.Error("a disowned FD can be used")
	}
	_ = unix.Close(r)
}

func TestADescriptorInUseIsClosedByTheLastUser(t *testing.T) {
	r, w := pipe(t)
	defer unix.Close(w)
	f := New(r)
	n, ok := f.Acquire()
	if !ok || n != r {
		t.Fatal(n, ok)
	}
	if err := f.Close(); err != nil || !isOpen(r) {
		t.Fatalf("Close in use: %v, open: %v", err, isOpen(r))
	}
	if _, ok := f.Acquire(); ok {
		t.Error("acquired after Close")
	}
	f.Release()
	if isOpen(r) {
		t.Error("open after the last use")
	}
}

func TestDisownInUseDoesNotClose(t *testing.T) {
	r, w := pipe(t)
	defer unix.Close(w)
	f := New(r)
	_, _ = f.Acquire()
	if f.Disown() != r {
		t.Error("not disowned")
	}
	f.Release()
	if !isOpen(r) {
		t.Error("closed by the last user")
	}
	_ = unix.Close(r)
}

func TestUseFromManyGoroutines(t *testing.T) {
	for range 200 {
		r, w := pipe(t)
		f := New(r)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					n, ok := f.Acquire()
					if !ok {
						return
					}
					if n != r || !isOpen(n) {
						t.Error("closed in use")
					}
					f.Release()
				}
			})
		}
		wg.Go(func() { _ = f.Close() })
		wg.Wait()
		if isOpen(r) {
			t.Fatal("open after Close")
		}
		_ = unix.Close(w)
	}
}

func TestDupIsIndependent(t *testing.T) {
	r, w := pipe(t)
	defer unix.Close(w)
	f := New(r)
	g, err := f.Dup()
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if !isOpen(g.Int()) || g.Int() < 3 {
		t.Error("duplicate is closed or standard input")
	}
	if fl, _ := unix.FcntlInt(uintptr(g.Int()), unix.F_GETFD, 0); fl&unix.FD_CLOEXEC == 0 {
		t.Error("duplicate is inherited")
	}
	_ = g.Close()
	if _, err := g.Dup(); !errors.Is(err, ErrClosed) {
		t.Errorf("duplicate of a closed one: %v", err)
	}
}

func TestZeroAndNegativeAreClosed(t *testing.T) {
	for _, f := range []*FD{{}, New(-1)} {
		if _, ok := f.Acquire(); ok || f.Int() != -1 || f.Disown() != -1 || f.Close() != nil {
			t.Error("owns something")
		}
	}
	if !isOpen(0) {
		t.Error("standard input was closed")
	}
}

func TestLeaksAreFoundWithTheirOrigin(t *testing.T) {
	StartTrace()
	defer tracing.Store(false)
	a, b := pipe(t)
	closed, leaked := New(a), New(b)
	_ = closed.Close()
	if l := Leaked(); len(l) != 1 || !strings.Contains(l[0], "TestLeaksAreFoundWithTheirOrigin") {
		t.Errorf("leaks: %v", l)
	}
	leaked.Keep()
	if l := Leaked(); len(l) != 0 {
		t.Errorf("kept ones are leaks: %v", l)
	}
	_ = leaked.Close()
}
