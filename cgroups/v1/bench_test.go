package cgroup1

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	ctrcgroups "github.com/containerd/cgroups/v3/cgroup1"
	ocicgroups "github.com/opencontainers/cgroups"
	ocifs "github.com/opencontainers/cgroups/fs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/pathsafe"
)

// busy is a live group for the benchmarks: one process, some memory and CPU used.
func busy(b *testing.B) *Group {
	b.Helper()
	g := create(b, limits(1))
	cmd := start(b, g, "sh", "-c", "x=0123456789; i=0; while [ $i -lt 12 ]; do x=$x$x; i=$((i+1)); done; sleep 1000")
	_ = cmd
	return g
}

func limits(i int64) *specs.LinuxResources {
	return &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr(64<<20 + i<<20), Swap: ptr(64<<20 + i<<20)},
		CPU:    &specs.LinuxCPU{Shares: ptr(uint64(512 + i)), Quota: ptr(50000 + i), Period: ptr[uint64](100000)},
		Pids:   &specs.LinuxPids{Limit: ptr(100 + i)},
	}
}

// BenchmarkStat is what a sweep of statistics costs for one container: "preads"
// is the floor, the same files read from the same descriptors into a buffer.
func BenchmarkStat(b *testing.B) {
	g := busy(b)
	b.Run("ibex", func(b *testing.B) {
		var s cgroups.Stats
		if err := g.Stat(&s); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		defer cpuTime(b)()
		for b.Loop() {
			if err := g.Stat(&s); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(g.stat.reader.Len()), "syscalls/op")
	})
	b.Run("preads", func(b *testing.B) {
		fds := statFDs(b, g)
		buf := make([]byte, 4096)
		b.ReportAllocs()
		defer cpuTime(b)()
		for b.Loop() {
			for _, fd := range fds {
				if _, err := unix.Pread(fd, buf, 0); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		m := peerManager(b, g)
		b.ReportAllocs()
		defer cpuTime(b)()
		for b.Loop() {
			if _, err := m.GetStats(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("containerd", func(b *testing.B) {
		c, err := ctrcgroups.Load(ctrcgroups.StaticPath(g.path.String()), ctrcgroups.WithHierarchy(ctrHierarchy))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		defer cpuTime(b)()
		for b.Loop() {
			if _, err := c.Stat(ctrcgroups.IgnoreNotExist); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// statFDs opens the files that Stat reads.
func statFDs(b *testing.B, g *Group) []int {
	b.Helper()
	var fds []int
	for _, f := range statTable() {
		m := g.member(f.Controller)
		if m == nil {
			continue
		}
		file, err := m.dir.OpenRead(pathsafe.MustName(f.Name))
		if err != nil {
			continue
		}
		b.Cleanup(func() { _ = file.Close() })
		fds = append(fds, file.FD())
	}
	return fds
}

func peerManager(b *testing.B, g *Group) *ocifs.Manager {
	b.Helper()
	paths := map[string]string{}
	for _, m := range ktest.CgroupMounts() {
		for _, c := range m.Controllers {
			paths[c] = filepath.Join(m.Dir, g.path.Rel().String())
		}
	}
	m, err := ocifs.NewManager(&ocicgroups.Cgroup{Path: g.path.String(), Resources: &ocicgroups.Resources{}}, paths)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// ctrHierarchy leaves the named hierarchies out, which have nothing to measure.
func ctrHierarchy() ([]ctrcgroups.Subsystem, error) {
	all, err := ctrcgroups.Default()
	if err != nil {
		return nil, err
	}
	var out []ctrcgroups.Subsystem
	for _, s := range all {
		if s.Name() != ctrcgroups.SystemdDbus && !strings.HasPrefix(string(s.Name()), "name=") {
			out = append(out, s)
		}
	}
	return out, nil
}

// BenchmarkRead compares the ways to read one counter of one cgroup: what a
// check of the opened file costs, and what a kept descriptor saves.
func BenchmarkRead(b *testing.B) {
	g := create(b, nil)
	dir := g.member("memory").dir
	name := pathsafe.MustName("memory.usage_in_bytes")
	path := filePath(b, g, "memory", "memory.usage_in_bytes")
	buf := make([]byte, 64)
	readOnce := func(b *testing.B, fd int) {
		if _, err := unix.Pread(fd, buf, 0); err != nil {
			b.Fatal(err)
		}
		_ = unix.Close(fd)
	}
	b.Run("kept", func(b *testing.B) {
		f, err := dir.OpenRead(name)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		for b.Loop() {
			if _, err := unix.Pread(f.FD(), buf, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("openat2", func(b *testing.B) {
		for b.Loop() {
			if _, err := dir.Read(name, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("openat+fstatfs", func(b *testing.B) {
		for b.Loop() {
			f, err := dir.OpenRead(name)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := f.ReadAt0(buf); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
	})
	b.Run("absolute+fstatfs", func(b *testing.B) {
		for b.Loop() {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			var st unix.Statfs_t
			if err := unix.Fstatfs(fd, &st); err != nil {
				b.Fatal(err)
			}
			readOnce(b, fd)
		}
	})
	b.Run("absolute unchecked", func(b *testing.B) {
		for b.Loop() {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			readOnce(b, fd)
		}
	})
}

// BenchmarkLife is creating, limiting and removing a group. The peers do it in
// every hierarchy, too, the unified one excepted.
func BenchmarkLife(b *testing.B) {
	l := layout(b)
	ctx := context.Background()
	b.Run("ibex", func(b *testing.B) {
		p := newPath(b)
		defer cpuTime(b)()
		for b.Loop() {
			g, err := Create(l, p, limits(0))
			if err != nil {
				b.Fatal(err)
			}
			if err := g.Delete(ctx); err != nil {
				b.Fatal(err)
			}
			g.Close()
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		p := newPath(b)
		config := &ocicgroups.Cgroup{Path: p.String(), Resources: &ocicgroups.Resources{
			Memory: 64 << 20, MemorySwap: 64 << 20, CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000,
			PidsLimit: ptr[int64](100), SkipDevices: true,
		}}
		defer cpuTime(b)()
		for b.Loop() {
			m, err := ocifs.NewManager(config, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Apply(-1); err != nil {
				b.Fatal(err)
			}
			if err := m.Set(config.Resources); err != nil {
				b.Fatal(err)
			}
			if err := m.Destroy(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("containerd", func(b *testing.B) {
		p := newPath(b)
		res := limits(0)
		defer cpuTime(b)()
		for b.Loop() {
			c, err := ctrcgroups.New(ctrcgroups.StaticPath(p.String()), res, ctrcgroups.WithHierarchy(ctrHierarchy))
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Delete(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// cpuTime reports the CPU time of the process per operation, which says more
// than the clock on a machine that does other things meanwhile.
func cpuTime(b *testing.B) func() {
	now := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	start := now()
	return func() { b.ReportMetric(float64(now()-start)/float64(b.N), "cpu-ns/op") }
}
