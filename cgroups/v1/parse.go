package cgroup1

import (
	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
)

// tick is the unit of cpuacct.stat in ns. USER_HZ is 100 on every architecture
// that ibex builds for (include/asm-generic/param.h).
const tick = 1e9 / 100

// parseUsagePercpu fills CPU.Usage and PerCPU from cpuacct.usage_percpu: the
// nanoseconds on each possible CPU, in one line.
func parseUsagePercpu(s *cgroups.Stats, text []byte) error {
	s.CPU.Usage, s.CPU.PerCPU = 0, s.CPU.PerCPU[:0]
	for rest := scan.Trim(text); len(rest) > 0; {
		var field []byte
		field, rest = scan.Field(rest)
		v, ok := scan.Uint(field)
		if !ok {
			return scan.Unexpected(text)
		}
		s.CPU.PerCPU = append(s.CPU.PerCPU, v)
		s.CPU.Usage += v
	}
	return nil
}

// parseCpuacctStat fills CPU.User and Kernel from cpuacct.stat.
func parseCpuacctStat(s *cgroups.Stats, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "user":
			s.CPU.User = v * tick
		case "system":
			s.CPU.Kernel = v * tick
		}
	})
}

// parseCPUStat fills the throttling from cpu.stat. Bursts are counted since
// Linux 5.15, commit bcb1704a1ed2.
func parseCPUStat(s *cgroups.Stats, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "nr_periods":
			s.CPU.Periods = v
			s.Has |= cgroups.HasThrottling
		case "nr_throttled":
			s.CPU.ThrottledPeriods = v
		case "throttled_time":
			s.CPU.ThrottledTime = v
		case "nr_bursts":
			s.CPU.Bursts = v
			s.Has |= cgroups.HasBursts
		case "burst_time":
			s.CPU.BurstTime = v
		}
	})
}

// parseMemoryStat fills Memory.V1 from memory.stat. Unknown keys are skipped:
// kernels add them in most releases.
//
// Documentation/admin-guide/cgroup-v1/memory.rst, "stat file".
func parseMemoryStat(s *cgroups.Stats, text []byte) error {
	m := &s.Memory.V1
	return scan.EachKey(text, func(key []byte, v uint64) {
		if p := memoryStatField(m, key); p != nil {
			*p = v
		}
	})
}

// memoryStatField finds the field for a key. The compiler turns the switch into
// a binary search without making a string.
func memoryStatField(m *cgroups.MemoryStatV1, key []byte) *uint64 {
	switch string(key) {
	case "cache":
		return &m.Cache
	case "rss":
		return &m.RSS
	case "rss_huge":
		return &m.RSSHuge
	case "shmem":
		return &m.Shmem
	case "mapped_file":
		return &m.MappedFile
	case "dirty":
		return &m.Dirty
	case "writeback":
		return &m.Writeback
	case "swap":
		return &m.Swap
	case "pgpgin":
		return &m.PgPgIn
	case "pgpgout":
		return &m.PgPgOut
	case "pgfault":
		return &m.PgFault
	case "pgmajfault":
		return &m.PgMajFault
	case "inactive_anon":
		return &m.InactiveAnon
	case "active_anon":
		return &m.ActiveAnon
	case "inactive_file":
		return &m.InactiveFile
	case "active_file":
		return &m.ActiveFile
	case "unevictable":
		return &m.Unevictable
	case "hierarchical_memory_limit":
		return &m.HierarchicalMemoryLimit
	case "hierarchical_memsw_limit":
		return &m.HierarchicalSwapLimit
	case "total_cache":
		return &m.TotalCache
	case "total_rss":
		return &m.TotalRSS
	case "total_rss_huge":
		return &m.TotalRSSHuge
	case "total_shmem":
		return &m.TotalShmem
	case "total_mapped_file":
		return &m.TotalMappedFile
	case "total_dirty":
		return &m.TotalDirty
	case "total_writeback":
		return &m.TotalWriteback
	case "total_swap":
		return &m.TotalSwap
	case "total_pgpgin":
		return &m.TotalPgPgIn
	case "total_pgpgout":
		return &m.TotalPgPgOut
	case "total_pgfault":
		return &m.TotalPgFault
	case "total_pgmajfault":
		return &m.TotalPgMajFault
	case "total_inactive_anon":
		return &m.TotalInactiveAnon
	case "total_active_anon":
		return &m.TotalActiveAnon
	case "total_inactive_file":
		return &m.TotalInactiveFile
	case "total_active_file":
		return &m.TotalActiveFile
	case "total_unevictable":
		return &m.TotalUnevictable
	}
	return nil
}

// parseBlkio adds the counters of one blkio file, whose lines are "8:0 Read 12",
// or "8:0 12" where the operation does not matter. The last line, "Total 12", is
// the sum over the devices and is left out.
func parseBlkio(s *cgroups.Stats, kind cgroups.IOKind, text []byte) error {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		dev, more := scan.Field(line)
		if dev == nil || string(dev) == "Total" {
			continue
		}
		e := cgroups.IOEntry{Kind: kind}
		var ok bool
		if e.Major, e.Minor, ok = scan.Device(dev); !ok {
			return scan.Unexpected(line)
		}
		word, more := scan.Field(more)
		if op, known := ioOp(word); known {
			e.Op = op
			word, more = scan.Field(more)
		}
		if e.Value, ok = scan.Uint(word); !ok || len(scan.Trim(more)) != 0 {
			return scan.Unexpected(line)
		}
		s.IO.Entries = append(s.IO.Entries, e)
	}
	return nil
}

func ioOp(word []byte) (op cgroups.IOOp, known bool) {
	switch string(word) {
	case "Read":
		return cgroups.OpRead, true
	case "Write":
		return cgroups.OpWrite, true
	case "Sync":
		return cgroups.OpSync, true
	case "Async":
		return cgroups.OpAsync, true
	case "Discard":
		return cgroups.OpDiscard, true
	case "Total":
		return cgroups.OpTotal, true
	}
	return cgroups.OpNone, false
}
