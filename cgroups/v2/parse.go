package cgroup2

import (
	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
)

// parseCPUStat fills CPU from cpu.stat, whose times are in µs. Without the cpu
// controller it has the first three lines only. Bursts are counted since Linux
// 5.15, commit bcb1704a1ed2.
func parseCPUStat(s *cgroups.Stats, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "usage_usec":
			s.CPU.Usage = v * 1000
		case "user_usec":
			s.CPU.User = v * 1000
		case "system_usec":
			s.CPU.Kernel = v * 1000
		case "nr_periods":
			s.CPU.Periods = v
			s.Has |= cgroups.HasThrottling
		case "nr_throttled":
			s.CPU.ThrottledPeriods = v
		case "throttled_usec":
			s.CPU.ThrottledTime = v * 1000
		case "nr_bursts":
			s.CPU.Bursts = v
			s.Has |= cgroups.HasBursts
		case "burst_usec":
			s.CPU.BurstTime = v * 1000
		}
	})
}

// parseMemoryStat fills Memory.V2 from memory.stat. Unknown keys are skipped:
// kernels add them in most releases.
//
// Documentation/admin-guide/cgroup-v2.rst, "memory.stat".
func parseMemoryStat(s *cgroups.Stats, text []byte) error {
	m := &s.Memory.V2
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "workingset_refault_anon", "workingset_refault_file":
			m.WorkingsetRefault += v
		case "workingset_activate_anon", "workingset_activate_file":
			m.WorkingsetActivate += v
		default:
			if p := memoryStatField(m, key); p != nil {
				*p = v
			}
		}
	})
}

// memoryStatField finds the field for a key. The compiler turns the switch into
// a binary search without making a string.
func memoryStatField(m *cgroups.MemoryStatV2, key []byte) *uint64 {
	switch string(key) {
	case "anon":
		return &m.Anon
	case "file":
		return &m.File
	case "kernel":
		return &m.Kernel
	case "kernel_stack":
		return &m.KernelStack
	case "slab":
		return &m.Slab
	case "sock":
		return &m.Sock
	case "shmem":
		return &m.Shmem
	case "file_mapped":
		return &m.FileMapped
	case "file_dirty":
		return &m.FileDirty
	case "file_writeback":
		return &m.FileWriteback
	case "anon_thp":
		return &m.AnonTHP
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
	case "slab_reclaimable":
		return &m.SlabReclaimable
	case "slab_unreclaimable":
		return &m.SlabUnreclaimable
	case "pgfault":
		return &m.PgFault
	case "pgmajfault":
		return &m.PgMajFault
	case "workingset_refault": // before Linux 5.9
		return &m.WorkingsetRefault
	case "workingset_activate":
		return &m.WorkingsetActivate
	case "workingset_nodereclaim":
		return &m.WorkingsetNodeReclaim
	case "pgrefill":
		return &m.PgRefill
	case "pgscan":
		return &m.PgScan
	case "pgsteal":
		return &m.PgSteal
	case "pgactivate":
		return &m.PgActivate
	case "pgdeactivate":
		return &m.PgDeactivate
	case "pglazyfree":
		return &m.PgLazyFree
	case "pglazyfreed":
		return &m.PgLazyFreed
	case "thp_fault_alloc":
		return &m.THPFaultAlloc
	case "thp_collapse_alloc":
		return &m.THPCollapseAlloc
	}
	return nil
}

// parseIOStat fills IO.Usage from io.stat:
//
//	8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
//
// A device that did nothing may have a line without fields, and controllers add
// fields of their own, which are skipped.
func parseIOStat(s *cgroups.Stats, text []byte) error {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		dev, more := scan.Field(line)
		if dev == nil {
			continue
		}
		var u cgroups.IOUsage
		var ok bool
		if u.Major, u.Minor, ok = scan.Device(dev); !ok {
			return scan.Unexpected(line)
		}
		for {
			var field []byte
			if field, more = scan.Field(more); field == nil {
				break
			}
			if key, value, ok := scan.Pair(field); ok {
				if p := ioField(&u, key); p != nil {
					if *p, ok = scan.Uint(value); !ok {
						return scan.Unexpected(line)
					}
				}
			}
		}
		s.IO.Usage = append(s.IO.Usage, u)
	}
	return nil
}

func ioField(u *cgroups.IOUsage, key []byte) *uint64 {
	switch string(key) {
	case "rbytes":
		return &u.ReadBytes
	case "wbytes":
		return &u.WriteBytes
	case "rios":
		return &u.ReadIOs
	case "wios":
		return &u.WriteIOs
	case "dbytes":
		return &u.DiscardBytes
	case "dios":
		return &u.DiscardIOs
	}
	return nil
}

// parseHugetlbEvents fills the failures from hugetlb.*.events.
func parseHugetlbEvents(h *cgroups.HugetlbStats, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		if string(key) == "max" {
			h.Failcnt = v
		}
	})
}

// pressure makes the reader of a pressure file:
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//
// Documentation/accounting/psi.rst. cpu.pressure has had its second line since
// Linux 5.13.
func pressure(to func(s *cgroups.Stats) *cgroups.Pressure) func(s *cgroups.Stats, text []byte) error {
	return func(s *cgroups.Stats, text []byte) error { return parsePressure(to(s), text) }
}

func parsePressure(p *cgroups.Pressure, text []byte) error {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		kind, more := scan.Field(line)
		var to *cgroups.Stall
		switch string(kind) {
		case "some":
			to = &p.Some
		case "full":
			to = &p.Full
		default:
			return scan.Unexpected(line)
		}
		for {
			var field []byte
			if field, more = scan.Field(more); field == nil {
				break
			}
			key, value, ok := scan.Pair(field)
			if ok {
				ok = to.Set(key, value)
			}
			if !ok {
				return scan.Unexpected(line)
			}
		}
	}
	return nil
}
