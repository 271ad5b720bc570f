package cgroup2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// statFiles is what Stat keeps.
type statFiles struct {
	reader cgroups.Reader
	sizes  []uint64 // of huge pages
}

func (o *statFiles) close() {
	o.reader.Close()
	o.sizes = nil
}

// statTable lists the files in the order in which they are read. memory.current
// comes right after memory.stat, because their difference is of interest.
func statTable() []cgroups.StatFile {
	return []cgroups.StatFile{
		{Name: "cpu.stat", Has: cgroups.HasCPU, Parse: parseCPUStat},
		{Name: "cpu.pressure", Has: cgroups.HasCPUPressure, Parse: pressure(func(s *cgroups.Stats) *cgroups.Pressure { return &s.CPU.Pressure })},
		{Name: "memory.stat", Has: cgroups.HasMemoryStat, Parse: parseMemoryStat},
		{Name: "memory.current", Has: cgroups.HasMemory, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Memory.Usage }},
		{Name: "memory.max", Has: cgroups.HasMemory, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Memory.Limit }},
		{Name: "memory.peak", Has: cgroups.HasMemoryPeak, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Memory.Max }},
		{Name: "memory.swap.current", Has: cgroups.HasSwap, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Swap.Usage }},
		{Name: "memory.swap.max", Has: cgroups.HasSwap, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Swap.Limit }},
		{Name: "memory.swap.peak", Has: cgroups.HasSwapPeak, Number: func(s *cgroups.Stats) *uint64 { return &s.Memory.Swap.Max }},
		{Name: "memory.events", Has: cgroups.HasMemoryEvents, Parse: func(s *cgroups.Stats, text []byte) error {
			return parseMemoryEvents(&s.Memory.Events, text)
		}},
		{Name: "memory.pressure", Has: cgroups.HasMemoryPressure, Parse: pressure(func(s *cgroups.Stats) *cgroups.Pressure { return &s.Memory.Pressure })},
		{Name: "pids.current", Has: cgroups.HasPids, Number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Current }},
		{Name: "pids.max", Has: cgroups.HasPids, Number: func(s *cgroups.Stats) *uint64 { return &s.Pids.Limit }},
		{Name: "io.stat", Has: cgroups.HasIO, Parse: parseIOStat},
		{Name: "io.pressure", Has: cgroups.HasIOPressure, Parse: pressure(func(s *cgroups.Stats) *cgroups.Pressure { return &s.IO.Pressure })},
		{Name: "rdma.current", Has: cgroups.HasRdma, Parse: cgroups.ParseRdmaCurrent},
		{Name: "rdma.max", Has: cgroups.HasRdma, Parse: cgroups.ParseRdmaMax},
	}
}

// hugetlbFiles are those of each size of huge pages that dir has files for.
func hugetlbFiles(dir *pathsafe.Dir) (files []cgroups.StatFile, sizes []uint64, err error) {
	entries, err := dir.List(1 << 16)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(strings.TrimPrefix(e.Name, "hugetlb."), ".current")
		if size, valid := cgroups.PageSize(name); ok && valid {
			sizes = append(sizes, size)
		}
	}
	slices.Sort(sizes)
	for i, size := range sizes {
		prefix := "hugetlb." + cgroups.PageSizeName(size) + "."
		files = append(files,
			cgroups.StatFile{Name: prefix + "current", Has: cgroups.HasHugetlb, Number: func(s *cgroups.Stats) *uint64 { return &s.Hugetlb[i].Usage }},
			cgroups.StatFile{Name: prefix + "max", Has: cgroups.HasHugetlb, Number: func(s *cgroups.Stats) *uint64 { return &s.Hugetlb[i].Max }},
			cgroups.StatFile{Name: prefix + "events", Has: cgroups.HasHugetlb, Parse: func(s *cgroups.Stats, text []byte) error {
				return parseHugetlbEvents(&s.Hugetlb[i], text)
			}})
	}
	return files, sizes, nil
}

// Stat reads the statistics into s. What this host does not have is absent, see
// Stats.Has; what is there and cannot be read is an error. After the group was
// removed the error is cgroups.ErrGone.
//
// The first call opens the files, about 20 of them, and keeps them; the next
// ones cost one pread(2) each and allocate nothing.
func (g *Group) Stat(s *cgroups.Stats) error {
	g.statMu.Lock()
	defer g.statMu.Unlock()
	if !g.stat.reader.Opened() {
		files, sizes, err := hugetlbFiles(g.dir)
		if err != nil {
			return g.fileError("list", "hugetlb", err)
		}
		table := append(statTable(), files...)
		if err := g.stat.reader.Open(g.path.String(), table, func(cgroups.StatFile) *pathsafe.Dir { return g.dir }); err != nil {
			return err
		}
		g.stat.sizes = sizes
	}
	s.Reset(2)
	for _, size := range g.stat.sizes {
		s.Hugetlb = append(s.Hugetlb, cgroups.HugetlbStats{PageSize: size})
	}
	return g.stat.reader.Read(s)
}

// StatFDs is the number of descriptors that the group holds now, that of its
// directory included.
func (g *Group) StatFDs() int {
	g.statMu.Lock()
	defer g.statMu.Unlock()
	return g.stat.reader.Len() + 1
}

// PidsCurrent reads the number of tasks alone.
func (g *Group) PidsCurrent() (uint64, error) { return g.single("pids", "pids.current") }

// MemoryUsage reads the memory in use, in bytes, alone.
func (g *Group) MemoryUsage() (uint64, error) { return g.single("memory", "memory.current") }

func (g *Group) single(controller, file string) (uint64, error) {
	v, ok, err := g.readUint(file)
	if err == nil && !ok {
		err = fmt.Errorf("%s of cgroup %s: %w", controller, g.path, cgroups.ErrNoController)
	}
	return v, err
}
