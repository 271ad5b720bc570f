package cgroup1

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// statTable lists the files in the order in which they are read. The counters of
// a resource are read one after the other, so that they fit together as well as
// separate files can. cpuacct.usage is not among them: it is the sum of
// cpuacct.usage_percpu (cpuusage_read, kernel/sched/cpuacct.c).
func statTable() []cgroups.StatFile {
	files := []cgroups.StatFile{
		{Controller: "cpuacct", Name: "cpuacct.usage_percpu", Has: cgroups.HasCPU | cgroups.HasPerCPU, Parse: parseUsagePercpu},
		{Controller: "cpuacct", Name: "cpuacct.stat", Has: cgroups.HasCPU, Parse: parseCpuacctStat},
		{Controller: "cpu", Name: "cpu.stat", Parse: parseCPUStat},
		{Controller: "memory", Name: "memory.stat", Has: cgroups.HasMemoryStat, Parse: parseMemoryStat},
		{Controller: "memory", Name: "memory.oom_control", Has: cgroups.HasOOMControl, Parse: func(s *cgroups.Stats, text []byte) error {
			return parseOOMControl(&s.Memory.OOMControl, text)
		}},
		{Controller: "pids", Name: "pids.current", Has: cgroups.HasPids, Number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Current }},
		{Controller: "pids", Name: "pids.max", Has: cgroups.HasPids, Number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Limit }},
		{Controller: "rdma", Name: "rdma.current", Has: cgroups.HasRdma, Parse: cgroups.ParseRdmaCurrent},
		{Controller: "rdma", Name: "rdma.max", Has: cgroups.HasRdma, Parse: cgroups.ParseRdmaMax},
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
			cgroups.StatFile{Controller: "memory", Name: c.prefix + "usage_in_bytes", Has: c.has, Number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Usage }},
			cgroups.StatFile{Controller: "memory", Name: c.prefix + "limit_in_bytes", Has: c.has, Number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Limit }},
			cgroups.StatFile{Controller: "memory", Name: c.prefix + "max_usage_in_bytes", Has: c.peak, Number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Max }},
			cgroups.StatFile{Controller: "memory", Name: c.prefix + "failcnt", Number: func(s *cgroups.Stats) *uint64 { return &c.counter(s).Failcnt }},
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
		files = append(files, cgroups.StatFile{Controller: "blkio", Name: b.name, Has: cgroups.HasBlkio, Parse: func(s *cgroups.Stats, text []byte) error {
			return parseBlkio(s, b.kind, text)
		}})
	}
	return files
}

// hugetlbFiles are those of each size of huge pages that dir has files for.
func hugetlbFiles(dir *pathsafe.Dir) (files []cgroups.StatFile, sizes []uint64, err error) {
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
			files = append(files, cgroups.StatFile{Controller: "hugetlb", Name: prefix + f.name, Has: cgroups.HasHugetlb, Number: f.number})
		}
	}
	return files, sizes, nil
}

// statFiles is what Stat keeps.
type statFiles struct {
	reader cgroups.Reader
	sizes  []uint64 // of huge pages
}

func (o *statFiles) close() {
	o.reader.Close()
	o.sizes = nil
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
	if !g.stat.reader.Opened() {
		if err := g.openStat(); err != nil {
			return err
		}
	}
	s.Reset(1)
	for _, size := range g.stat.sizes {
		s.Hugetlb = append(s.Hugetlb, cgroups.HugetlbStats{PageSize: size})
	}
	return g.stat.reader.Read(s)
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
	return g.stat.reader.Open(g.path.String(), table, func(f cgroups.StatFile) *pathsafe.Dir {
		if m := g.member(f.Controller); m != nil {
			return m.dir
		}
		return nil
	})
}

// StatFDs is the number of descriptors that the group holds now, those of its
// directories included.
func (g *Group) StatFDs() int {
	g.statMu.Lock()
	defer g.statMu.Unlock()
	return g.stat.reader.Len() + len(g.all())
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
