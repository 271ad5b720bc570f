package pathsafe

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// I12: nothing is allocated on the hot paths. OpenRead allocates the File that
// it returns, once for each counter that is kept.
func TestHotPathsDoNotAllocate(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, _ := group(t, h)
	n := MustName("pids.max")
	buf, data := make([]byte, 64), []byte("5")
	f, err := g.OpenRead(n)
	must(t, err)
	defer f.Close()
	s, _ := stateDir(t, "file f x")
	for name, tt := range map[string]struct {
		most float64
		call func() error
	}{
		"Read":       {0, func() error { return second(g.Read(n, buf)) }},
		"Write":      {0, func() error { return g.Write(n, data) }},
		"ReadAt0":    {0, func() error { return second(f.ReadAt0(buf)) }},
		"state Read": {0, func() error { return second(s.Read(MustNameF, buf)) }},
	} {
		var err error
		if got := testing.AllocsPerRun(200, func() { err = tt.call() }); got > tt.most || err != nil {
			t.Errorf("%s: %v allocations, %v", name, got, err)
		}
	}
	got := testing.AllocsPerRun(200, func() {
		f, err := g.OpenRead(n)
		if err == nil {
			_ = f.Close()
		}
	})
	if got > 2 { // the File, and the trace of leaks, which only tests have
		t.Errorf("OpenRead: %v allocations", got)
	}
}

// MustNameF is made outside of what is measured.
var MustNameF = MustName("f")

// The system calls of each operation, in order.
func TestSystemCalls(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, _ := group(t, h)
	r, _ := root(t, "dir a/b/c")
	n, rel, deep, path := MustName("pids.max"), MustRel("sub"), MustRel("x/y/z"), inRoot(t, "a/b/c")
	kept, err := g.OpenRead(n)
	must(t, err)
	defer kept.Close()
	for _, d := range []Rel{rel, deep} {
		made, _, err := g.MkdirAll(d, 0o755)
		must(t, err)
		must(t, made.Close())
	}
	names := map[int]string{
		unix.SYS_OPENAT2: "openat2", unix.SYS_OPENAT: "openat", unix.SYS_FSTATFS: "fstatfs", unix.SYS_STATX: "statx",
		unix.SYS_PREAD64: "pread", unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_CLOSE: "close",
		unix.SYS_MKDIRAT: "mkdirat", unix.SYS_FCNTL: "fcntl", unix.SYS_FSTAT: "fstat",
	}
	var nrs []int
	for nr := range names {
		nrs = append(nrs, nr)
	}
	var calls []string
	mu := gate(t, func(_ int, nr int) verdict { calls = append(calls, names[nr]); return pass }, nrs...)
	buf := make([]byte, 64)
	var keep interface{ Close() error }
	for _, tt := range []struct {
		name string
		call func() error
		want []string
	}{
		{"Read", func() error { return second(g.Read(n, buf)) }, []string{"openat2", "pread", "close"}},
		{"Write", func() error { return g.Write(n, []byte("5")) }, []string{"openat2", "write", "close"}},
		{"OpenRead", func() error { f, err := g.OpenRead(n); keep = f; return err }, []string{"openat", "fstatfs"}},
		{"ReadAt0", func() error { return second(kept.ReadAt0(buf)) }, []string{"pread"}},
		{"Sub", func() error { d, err := g.Sub(rel); keep = d; return err }, []string{"openat2", "statx"}},
		{"MkdirAll of what is there", func() error { d, _, err := g.MkdirAll(deep, 0o755); keep = d; return err }, []string{"openat2", "statx"}},
		{"Resolve", func() error { t, err := r.Resolve(path, KindDir); keep = t; return err }, []string{"openat2", "statx", "fstatfs"}},
	} {
		mu.Lock()
		calls, keep = nil, nil
		mu.Unlock()
		must(t, tt.call())
		mu.Lock()
		got := slices.Clone(calls)
		mu.Unlock()
		if keep != nil {
			must(t, keep.Close())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The two ways of reading a cgroup file, and the kept descriptor, side by side:
// whoever changes the choice sees the price.
func BenchmarkReadOfACgroupFile(b *testing.B) {
	h, _ := hierarchy(b, "pids")
	d, _ := group(b, h)
	n := MustName("pids.max")
	buf := make([]byte, 4096)
	b.Run("openat2", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Read(n, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("openat+fstatfs", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			raw, ok := d.fd.Acquire()
			if !ok {
				b.Fatal(ErrClosed)
			}
			f, err := d.openKernfsRead(raw, n.c)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = preadAll(f, buf, true)
			_ = unix.Close(f)
			d.fd.Release()
		}
	})
	b.Run("kept", func(b *testing.B) {
		f, err := d.OpenRead(n)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.ReadAt0(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkOpenProc(b *testing.B) {
	for b.Loop() {
		p, err := OpenProc(true)
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Close()
	}
}
