package main

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/ibex-run/ibex/cgroups"
)

// The statistics as other runtimes print them: same names, same units. Processor
// times are in nanoseconds, sizes in bytes.
type (
	stats struct {
		CPU     cpuStats               `json:"cpu"`
		CPUSet  struct{}               `json:"cpuset"`
		Memory  memoryStats            `json:"memory"`
		Pids    pidsStats              `json:"pids"`
		Blkio   map[string]any         `json:"blkio"`
		Hugetlb map[string]hugetlbStat `json:"hugetlb"`
		RDT     struct{}               `json:"intel_rdt"`
		Network []struct{}             `json:"network_interfaces"`
	}
	cpuStats struct {
		Usage      cpuUsage   `json:"usage,omitzero"`
		Throttling throttling `json:"throttling,omitzero"`
		PSI        *psi       `json:"psi,omitempty"`
	}
	cpuUsage struct {
		Total  uint64   `json:"total,omitempty"`
		PerCPU []uint64 `json:"percpu,omitempty"`
		Kernel uint64   `json:"kernel"`
		User   uint64   `json:"user"`
	}
	throttling struct {
		Periods          uint64 `json:"periods,omitempty"`
		ThrottledPeriods uint64 `json:"throttledPeriods,omitempty"`
		ThrottledTime    uint64 `json:"throttledTime,omitempty"`
	}
	memoryStats struct {
		Cache     uint64            `json:"cache,omitempty"`
		Usage     memoryEntry       `json:"usage,omitzero"`
		Swap      memoryEntry       `json:"swap,omitzero"`
		Kernel    memoryEntry       `json:"kernel,omitzero"`
		KernelTCP memoryEntry       `json:"kernelTCP,omitzero"`
		Raw       map[string]uint64 `json:"raw,omitempty"`
		PSI       *psi              `json:"psi,omitempty"`
	}
	memoryEntry struct {
		Limit   uint64 `json:"limit"`
		Usage   uint64 `json:"usage,omitempty"`
		Max     uint64 `json:"max,omitempty"`
		Failcnt uint64 `json:"failcnt"`
	}
	pidsStats struct {
		Current uint64 `json:"current,omitempty"`
		Limit   uint64 `json:"limit,omitempty"`
	}
	hugetlbStat struct {
		Usage   uint64 `json:"usage,omitempty"`
		Max     uint64 `json:"max,omitempty"`
		Failcnt uint64 `json:"failcnt"`
	}
	blkioEntry struct {
		Major uint64 `json:"major,omitempty"`
		Minor uint64 `json:"minor,omitempty"`
		Op    string `json:"op,omitempty"`
		Value uint64 `json:"value,omitempty"`
	}
	psi struct {
		Some stall `json:"some,omitzero"`
		Full stall `json:"full,omitzero"`
	}
	stall struct {
		Avg10  float64 `json:"avg10"`
		Avg60  float64 `json:"avg60"`
		Avg300 float64 `json:"avg300"`
		Total  uint64  `json:"total"`
	}
)

func statsOf(s *cgroups.Stats) stats {
	out := stats{
		CPU: cpuStats{
			Usage:      cpuUsage{s.CPU.Usage, s.CPU.PerCPU, s.CPU.Kernel, s.CPU.User},
			Throttling: throttling{s.CPU.Periods, s.CPU.ThrottledPeriods, s.CPU.ThrottledTime},
			PSI:        pressure(s, cgroups.HasCPUPressure, s.CPU.Pressure),
		},
		Memory: memoryStats{
			Usage: counter(s.Memory.Memory), Swap: counter(s.Memory.Swap),
			Kernel: counter(s.Memory.Kernel), KernelTCP: counter(s.Memory.KernelTCP),
			PSI: pressure(s, cgroups.HasMemoryPressure, s.Memory.Pressure),
		},
		Pids:    pidsStats{s.Pids.Current, s.Pids.Limit},
		Blkio:   blkio(s),
		Hugetlb: map[string]hugetlbStat{},
	}
	if s.Pids.Limit == cgroups.NoLimit {
		out.Pids.Limit = 0
	}
	if s.Has&cgroups.HasMemoryStat != 0 && s.Version == 1 {
		out.Memory.Cache, out.Memory.Raw = s.Memory.V1.Cache, raw(s.Memory.V1)
	} else if s.Has&cgroups.HasMemoryStat != 0 {
		out.Memory.Cache, out.Memory.Raw = s.Memory.V2.File, raw(s.Memory.V2)
	}
	for _, h := range s.Hugetlb {
		out.Hugetlb[pageSize(h.PageSize)] = hugetlbStat{h.Usage, h.Max, h.Failcnt}
	}
	return out
}

func counter(c cgroups.Counter) memoryEntry { return memoryEntry{c.Limit, c.Usage, c.Max, c.Failcnt} }

func pressure(s *cgroups.Stats, has cgroups.Has, p cgroups.Pressure) *psi {
	if s.Has&has == 0 {
		return nil
	}
	line := func(l cgroups.Stall) stall {
		return stall{float64(l.Avg10) / 100, float64(l.Avg60) / 100, float64(l.Avg300) / 100, l.Total}
	}
	return &psi{line(p.Some), line(p.Full)}
}

// blkioNames are the lists by the kind of counter.
var blkioNames = map[cgroups.IOKind]string{
	cgroups.IOServiceBytes: "ioServiceBytesRecursive", cgroups.IOServiced: "ioServicedRecursive",
	cgroups.IOQueued: "ioQueueRecursive", cgroups.IOServiceTime: "ioServiceTimeRecursive",
	cgroups.IOWaitTime: "ioWaitTimeRecursive", cgroups.IOMerged: "ioMergedRecursive",
	cgroups.IOTime: "ioTimeRecursive", cgroups.IOSectors: "sectorsRecursive",
}

func blkio(s *cgroups.Stats) map[string]any {
	lists := map[string][]blkioEntry{}
	add := func(kind cgroups.IOKind, e blkioEntry) { lists[blkioNames[kind]] = append(lists[blkioNames[kind]], e) }
	for _, e := range s.IO.Entries {
		add(e.Kind, blkioEntry{e.Major, e.Minor, e.Op.String(), e.Value})
	}
	for _, u := range s.IO.Usage {
		add(cgroups.IOServiceBytes, blkioEntry{u.Major, u.Minor, "Read", u.ReadBytes})
		add(cgroups.IOServiceBytes, blkioEntry{u.Major, u.Minor, "Write", u.WriteBytes})
		add(cgroups.IOServiced, blkioEntry{u.Major, u.Minor, "Read", u.ReadIOs})
		add(cgroups.IOServiced, blkioEntry{u.Major, u.Minor, "Write", u.WriteIOs})
	}
	out := map[string]any{}
	for name, l := range lists {
		out[name] = l
	}
	if p := pressure(s, cgroups.HasIOPressure, s.IO.Pressure); p != nil {
		out["psi"] = p
	}
	return out
}

// raw names the fields of a memory.stat as the kernel does: InactiveAnon is
// inactive_anon.
func raw(v any) map[string]uint64 {
	out := map[string]uint64{}
	rv := reflect.ValueOf(v)
	for i := range rv.NumField() {
		out[kernelName(rv.Type().Field(i).Name)] = rv.Field(i).Uint()
	}
	return out
}

// runTogether are words that the kernel does not separate.
var runTogether = strings.NewReplacer(
	"PgPgIn", "Pgpgin", "PgPgOut", "Pgpgout", "PgMajFault", "Pgmajfault", "PgFault", "Pgfault", "PgRefill", "Pgrefill",
	"PgScan", "Pgscan", "PgSteal", "Pgsteal", "PgActivate", "Pgactivate", "PgDeactivate", "Pgdeactivate",
	"PgLazyFreed", "Pglazyfreed", "PgLazyFree", "Pglazyfree", "NodeReclaim", "Nodereclaim",
	"RSSHuge", "RssHuge", "RSS", "Rss", "THP", "Thp", "HierarchicalSwapLimit", "HierarchicalMemswLimit",
)

func kernelName(field string) string {
	var b strings.Builder
	for i, c := range runTogether.Replace(field) {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// pageSize prints a size of huge pages as the kernel's file names do.
func pageSize(n uint64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%dGB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMB", n>>20)
	}
	return fmt.Sprintf("%dKB", n>>10)
}
