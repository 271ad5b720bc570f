package cgroup1

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

// statFile is one file of the statistics: where it is, and what its text fills.
// Either parse or number is set.
type statFile struct {
	controller, name string
	has              cgroups.Has
	parse            func(s *cgroups.Stats, text []byte) error
	number           func(s *cgroups.Stats) *uint64
}

// statTable lists the files in the order in which they are read. The counters of
// a resource are read one after the other, so that they fit together as well as
// separate files can. cpuacct.usage is not among them: it is the sum of
// cpuacct.usage_percpu (cpuusage_read, kernel/sched/cpuacct.c).
func statTable() []statFile {
	files := []statFile{
		{controller: "cpuacct", name: "cpuacct.usage_percpu", has: cgroups.HasCPU | cgroups.HasPerCPU, parse: parseUsagePercpu},
		{controller: "cpuacct", name: "cpuacct.stat", has: cgroups.HasCPU, parse: parseCpuacctStat},
		{controller: "cpu", name: "cpu.stat", parse: parseCPUStat},
		{controller: "memory", name: "memory.stat", has: cgroups.HasMemoryStat, parse: parseMemoryStat},
		{controller: "memory", name: "memory.oom_control", has: cgroups.HasOOMControl, parse: func(s *cgroups.Stats, text []byte) error {
			return parseOOMControl(&s.Memory.OOMControl, text)
		}},
		{controller: "pids", name: "pids.current", has: cgroups.HasPids, number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Current }},
		{controller: "pids", name: "pids.max", has: cgroups.HasPids, number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Limit }},
		{controller: "rdma", name: "rdma.current", has: cgroups.HasRdma, parse: cgroups.ParseRdmaCurrent},
		{controller: "rdma", name: "rdma.max", has: cgroups.HasRdma, parse: cgroups.ParseRdmaMax},
	}
	for _, c := range []struct {
		prefix    string
		has, peak cgroups.Has
		counter   func(s *cgroups.Stats) *cgroups.Counter
	}{
		{"memory.", cgroups.HasMemory, cgroups.HasMemoryPeak, func(s *cgroups.Stats) *cgroups.Counter { return &s.Memory.Memory }},
		{"memory.memsw.", cgroups.HasSwap, cgroups.HasSwapPeak, func(s *cgroups.Stats) *cgroups.Counter { return &s.Memory.Swap }},
		{"memory.kmem.", cgroups.HasKernel, 0, func(s *cgroups.Stats) *cgroups.Counter { return &s.Memory.Kernel }},
		{"memory.kmem.tcp.", cgroups.HasKernelTCP, 0, func(s *cgroups.Stats) *cgroups.Counter { return &s.Memory.KernelTCP }},
	} {
		files = append(files,
			statFile{controller: "memory", name: c.prefix + "usage_in_bytes", has: c.has, number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Usage }},
			statFile{controller: "memory", name: c.prefix + "limit_in_bytes", has: c.has, number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Limit }},
			statFile{controller: "memory", name: c.prefix + "max_usage_in_bytes", has: c.peak, number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Max }},
			statFile{controller: "memory", name: c.prefix + "failcnt", number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Failcnt }},
		)
	}
	// blkio.throttle counts for every device whatever its scheduler. What only
	// BFQ counts is read where the kernel has it (CONFIG_BFQ_CGROUP_DEBUG).
	for _, b := range []struct {
		name string
		kind cgroups.IOKind
	}{
		{"blkio.throttle.io_service_bytes_recursive", cgroups.IOServiceBytes},
		{"blkio.throttle.io_serviced_recursive", cgroups.IOServiced},
		{"blkio.bfq.io_queued_recursive", cgroups.IOQueued},
		{"blkio.bfq.io_service_time_recursive", cgroups.IOServiceTime},
		{"blkio.bfq.io_wait_time_recursive", cgroups.IOWaitTime},
		{"blkio.bfq.io_merged_recursive", cgroups.IOMerged},
		{"blkio.bfq.time_recursive", cgroups.IOTime},
		{"blkio.bfq.sectors_recursive", cgroups.IOSectors},
	} {
		files = append(files, statFile{controller: "blkio", name: b.name, has: cgroups.HasBlkio, parse: func(s *cgroups.Stats, text []byte) error {
			return parseBlkio(s, b.kind, text)
		}})
	}
	return files
}

// hugetlbFiles are those of each size of huge pages that dir has files for.
func hugetlbFiles(dir *pathsafe.Dir) (files []statFile, sizes []uint64, err error) {
	entries, err := dir.List(1 << 16)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(strings.TrimPrefix(e.Name, "hugetlb."), ".usage_in_bytes")
		if size, valid := cgroups.PageSize(name); ok && valid {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	for i, size := range sizes {
		prefix := "hugetlb." + cgroups.PageSizeName(size) + "."
		for _, f := range []struct {
			name   string
			number func(s *cgroups.Stats) *uint64
		}{
			{"usage_in_bytes", func(s *cgroups.Stats) *uint64 { return &s.Hugetlb[i].Usage }},
			{"max_usage_in_bytes", func(s *cgroups.Stats) *uint64 { return &s.Hugetlb[i].Max }},
			{"failcnt", func(s *cgroups.Stats) *uint64 { return &s.Hugetlb[i].Failcnt }},
		} {
			files = append(files, statFile{controller: "hugetlb", name: prefix + f.name, has: cgroups.HasHugetlb, number: f.number})
		}
	}
	return files, sizes, nil
}

// statFiles holds the open files.
type statFiles struct {
	opened bool
	files  []openStat
	sizes  []uint64 // of huge pages
	buf    []byte
}

type openStat struct {
	statFile
	f *pathsafe.File
}

func (o *statFiles) close() {
	for i := range o.files {
		_ = o.files[i].f.Close()
	}
	*o = statFiles{}
}

// Stat reads the statistics into s. What this host does not have is absent, see
// Stats.Has; what is there and cannot be read is an error. After the group was
// removed the error is cgroups.ErrGone.
//
// The first call opens the files, about 25 of them, and keeps them; the next
// ones cost one pread(2) each and allocate nothing.
func (g *Group) Stat(s *cgroups.Stats) error {
	g.statMu.Lock()
	defer g.statMu.Unlock()
	if !g.stat.opened {
		if err := g.openStat(); err != nil {
			return err
		}
	}
	s.Reset(1)
	for _, size := range g.stat.sizes {
		s.Hugetlb = append(s.Hugetlb, cgroups.HugetlbStats{PageSize: size})
	}
	for i := range g.stat.files {
		if err := g.readStat(s, &g.stat.files[i]); err != nil {
			return err
		}
	}
	return nil
}

// openStat opens the files that are there.
func (g *Group) openStat() error {
	table := statTable()
	if m := g.member("hugetlb"); m != nil {
		files, sizes, err := hugetlbFiles(m.dir)
		if err != nil {
			return g.fileError("list", "hugetlb", err)
		}
		table, g.stat.sizes = append(table, files...), sizes
	}
	for _, f := range table {
		m := g.member(f.controller)
		if m == nil {
			continue
		}
		file, err := m.dir.OpenRead(pathsafe.MustName(f.name))
		if errors.Is(err, unix.ENOENT) && !errors.Is(err, pathsafe.ErrGone) {
			continue
		}
		if err != nil {
			g.stat.close()
			return g.fileError("open", f.name, err)
		}
		g.stat.files = append(g.stat.files, openStat{f, file})
	}
	g.stat.opened = true
	g.stat.buf = make([]byte, 4096)
	return nil
}

// readStat reads one file into s. The buffer stays as large as the largest file
// has needed.
func (g *Group) readStat(s *cgroups.Stats, o *openStat) error {
	n, err := pread(o.f, g.stat.buf)
	for n == len(g.stat.buf) && n < maxStatFile {
		g.stat.buf = make([]byte, 2*n)
		n, err = pread(o.f, g.stat.buf)
	}
	if err != nil {
		return g.fileError("read", o.name, err)
	}
	text := g.stat.buf[:n]
	if o.number != nil {
		v, ok := scan.UintOrMax(scan.Trim(text))
		if !ok {
			return g.fileError("parse", o.name, fmt.Errorf("unexpected %.100q", text))
		}
		*o.number(s) = v
	} else if err := o.parse(s, text); err != nil {
		return g.fileError("parse", o.name, err)
	}
	s.Has |= o.has
	return nil
}

const maxStatFile = 1 << 20

// pread reads a file that the kernel prints at once. All files of the statistics
// are such (single_open in cgroup_seqfile_start, kernel/cgroup/cgroup.c), so a
// reading that does not fill buf is the whole file and needs no second pread,
// for which the kernel would make the text again.
func pread(f *pathsafe.File, buf []byte) (int, error) {
	for {
		n, err := unix.Pread(f.FD(), buf, 0)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// StatFDs is the number of descriptors that the group holds now, those of its
// directories included.
func (g *Group) StatFDs() int {
	g.statMu.Lock()
	defer g.statMu.Unlock()
	return len(g.stat.files) + len(g.all())
}

// PidsCurrent reads the number of tasks alone.
func (g *Group) PidsCurrent() (uint64, error) {
	v, ok, err := g.readUint("pids", "pids.current")
	if err == nil && !ok {
		err = fmt.Errorf("pids of cgroup %s: %w", g.path, cgroups.ErrNoController)
	}
	return v, err
}

// MemoryUsage reads the memory in use, in bytes, alone.
func (g *Group) MemoryUsage() (uint64, error) {
	v, ok, err := g.readUint("memory", "memory.usage_in_bytes")
	if err == nil && !ok {
		err = fmt.Errorf("memory of cgroup %s: %w", g.path, cgroups.ErrNoController)
	}
	return v, err
}
