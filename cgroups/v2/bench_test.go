package cgroup2

import (
	"context"
	"path/filepath"
	"testing"

	ctrcgroups "github.com/containerd/cgroups/v3/cgroup2"
	ocicgroups "github.com/opencontainers/cgroups"
	ocifs2 "github.com/opencontainers/cgroups/fs2"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// BenchmarkStat is what a sweep of statistics costs for one container: "preads"
// is the floor, the same files read from the same descriptors into a buffer.
func BenchmarkStat(b *testing.B) {
	g := create(b, nil)
	start(b, g, "sh", "-c", "x=0123456789; i=0; while [ $i -lt 12 ]; do x=$x$x; i=$((i+1)); done; sleep 1000")
	b.Run("ibex", func(b *testing.B) {
		var s cgroups.Stats
		if err := g.Stat(&s); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
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
		for b.Loop() {
			for _, fd := range fds {
				if _, err := unix.Pread(fd, buf, 0); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		m, err := ocifs2.NewManager(&ocicgroups.Cgroup{Resources: &ocicgroups.Resources{}}, filepath.Join(mount, g.path.Rel().String()))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.GetStats(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("containerd", func(b *testing.B) {
		c, err := ctrcgroups.Load("/"+g.path.Rel().String(), ctrcgroups.WithMountpoint(mount))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Stat(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// statFDs opens the files that Stat reads.
func statFDs(b *testing.B, g *Group) []int {
	b.Helper()
	more, _, err := hugetlbFiles(g.dir)
	if err != nil {
		b.Fatal(err)
	}
	var fds []int
	for _, f := range append(statTable(), more...) {
		file, err := g.dir.OpenRead(pathsafe.MustName(f.Name))
		if err != nil {
			continue
		}
		b.Cleanup(func() { _ = file.Close() })
		fds = append(fds, file.FD())
	}
	return fds
}

// BenchmarkLife is creating and removing a group with its device program. The
// peers' groups have none.
func BenchmarkLife(b *testing.B) {
	l := layout(b)
	ctx := context.Background()
	b.Run("ibex", func(b *testing.B) {
		p := newPath(b)
		for b.Loop() {
			g, err := Create(l, p, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := g.Delete(ctx); err != nil {
				b.Fatal(err)
			}
			g.Close()
		}
	})
	b.Run("containerd", func(b *testing.B) {
		p := newPath(b)
		for b.Loop() {
			c, err := ctrcgroups.NewManager(mount, "/"+p.Rel().String(), &ctrcgroups.Resources{})
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Delete(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
