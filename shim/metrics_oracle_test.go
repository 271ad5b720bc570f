package shim

import (
	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"google.golang.org/protobuf/proto"

	"github.com/ibex-run/ibex/cgroups"
)

// The conversion that the encoder is held against, with generated types.

func metricsOf(s *cgroups.Stats) proto.Message {
	if s.Version == 2 {
		return wantV2(s)
	}
	return wantV1(s)
}

func wantV1(s *cgroups.Stats) *v1.Metrics {
	m := &v1.Metrics{}
	if s.Has&cgroups.HasPids != 0 {
		// 0 is "no limit" here, as containerd's own reader has it.
		m.Pids = &v1.PidsStat{Current: s.Pids.Current, Limit: zeroForNone(s.Pids.Limit)}
	}
	if s.Has&(cgroups.HasCPU|cgroups.HasPerCPU|cgroups.HasThrottling) != 0 {
		m.CPU = &v1.CPUStat{
			Usage: &v1.CPUUsage{
				Total: s.CPU.Usage, User: s.CPU.User, Kernel: s.CPU.Kernel, PerCPU: s.CPU.PerCPU,
			},
			Throttling: &v1.Throttle{
				Periods: s.CPU.Periods, ThrottledPeriods: s.CPU.ThrottledPeriods, ThrottledTime: s.CPU.ThrottledTime,
			},
		}
	}
	if s.Has&(cgroups.HasMemory|cgroups.HasMemoryStat) != 0 {
		m.Memory = memoryV1(s)
	}
	if s.Has&cgroups.HasOOMControl != 0 {
		o := &s.Memory.OOMControl
		m.MemoryOomControl = &v1.MemoryOomControl{OomKillDisable: o.KillDisable, UnderOom: o.UnderOOM, OomKill: o.Kill}
	}
	if s.Has&cgroups.HasBlkio != 0 {
		m.Blkio = blkioV1(s.IO.Entries)
	}
	for i := range s.Hugetlb {
		h := &s.Hugetlb[i]
		m.Hugetlb = append(m.Hugetlb, &v1.HugetlbStat{
			Usage: h.Usage, Max: h.Max, Failcnt: h.Failcnt, Pagesize: pageSizeName(h.PageSize),
		})
	}
	if s.Has&cgroups.HasRdma != 0 {
		m.Rdma = &v1.RdmaStat{}
		for i := range s.Rdma {
			r := &s.Rdma[i]
			m.Rdma.Current = append(m.Rdma.Current, &v1.RdmaEntry{
				Device: r.Device, HcaHandles: uint32(clamp32(r.Handles)), HcaObjects: uint32(clamp32(r.Objects)),
			})
			m.Rdma.Limit = append(m.Rdma.Limit, &v1.RdmaEntry{
				Device: r.Device, HcaHandles: uint32(clamp32(r.HandleLimit)), HcaObjects: uint32(clamp32(r.ObjectLimit)),
			})
		}
	}
	return m
}

func memoryV1(s *cgroups.Stats) *v1.MemoryStat {
	st := &s.Memory.V1
	m := &v1.MemoryStat{
		Cache: st.Cache, RSS: st.RSS, RSSHuge: st.RSSHuge, MappedFile: st.MappedFile,
		Dirty: st.Dirty, Writeback: st.Writeback,
		PgPgIn: st.PgPgIn, PgPgOut: st.PgPgOut, PgFault: st.PgFault, PgMajFault: st.PgMajFault,
		InactiveAnon: st.InactiveAnon, ActiveAnon: st.ActiveAnon,
		InactiveFile: st.InactiveFile, ActiveFile: st.ActiveFile, Unevictable: st.Unevictable,
		HierarchicalMemoryLimit: st.HierarchicalMemoryLimit, HierarchicalSwapLimit: st.HierarchicalSwapLimit,
		TotalCache: st.TotalCache, TotalRSS: st.TotalRSS, TotalRSSHuge: st.TotalRSSHuge,
		TotalMappedFile: st.TotalMappedFile, TotalDirty: st.TotalDirty, TotalWriteback: st.TotalWriteback,
		TotalPgPgIn: st.TotalPgPgIn, TotalPgPgOut: st.TotalPgPgOut,
		TotalPgFault: st.TotalPgFault, TotalPgMajFault: st.TotalPgMajFault,
		TotalInactiveAnon: st.TotalInactiveAnon, TotalActiveAnon: st.TotalActiveAnon,
		TotalInactiveFile: st.TotalInactiveFile, TotalActiveFile: st.TotalActiveFile,
		TotalUnevictable: st.TotalUnevictable,
		Usage:            entryV1(&s.Memory.Memory),
	}
	if s.Has&cgroups.HasSwap != 0 {
		m.Swap = entryV1(&s.Memory.Swap)
	}
	if s.Has&cgroups.HasKernel != 0 {
		m.Kernel = entryV1(&s.Memory.Kernel)
	}
	if s.Has&cgroups.HasKernelTCP != 0 {
		m.KernelTCP = entryV1(&s.Memory.KernelTCP)
	}
	return m
}

func entryV1(c *cgroups.Counter) *v1.MemoryEntry {
	return &v1.MemoryEntry{Usage: c.Usage, Limit: c.Limit, Max: c.Max, Failcnt: c.Failcnt}
}

func blkioV1(entries []cgroups.IOEntry) *v1.BlkIOStat {
	b := &v1.BlkIOStat{}
	lists := [...]*[]*v1.BlkIOEntry{
		cgroups.IOServiceBytes: &b.IoServiceBytesRecursive,
		cgroups.IOServiced:     &b.IoServicedRecursive,
		cgroups.IOQueued:       &b.IoQueuedRecursive,
		cgroups.IOServiceTime:  &b.IoServiceTimeRecursive,
		cgroups.IOWaitTime:     &b.IoWaitTimeRecursive,
		cgroups.IOMerged:       &b.IoMergedRecursive,
		cgroups.IOTime:         &b.IoTimeRecursive,
		cgroups.IOSectors:      &b.SectorsRecursive,
	}
	for i := range entries {
		e := &entries[i]
		if int(e.Kind) >= len(lists) {
			continue
		}
		*lists[e.Kind] = append(*lists[e.Kind], &v1.BlkIOEntry{
			Op: e.Op.String(), Major: e.Major, Minor: e.Minor, Value: e.Value,
		})
	}
	return b
}

func wantV2(s *cgroups.Stats) *v2.Metrics {
	m := &v2.Metrics{}
	if s.Has&cgroups.HasPids != 0 {
		m.Pids = &v2.PidsStat{Current: s.Pids.Current, Limit: s.Pids.Limit}
	}
	if s.Has&cgroups.HasCPU != 0 {
		c := &s.CPU
		m.CPU = &v2.CPUStat{
			UsageUsec: c.Usage / 1000, UserUsec: c.User / 1000, SystemUsec: c.Kernel / 1000,
			NrPeriods: c.Periods, NrThrottled: c.ThrottledPeriods, ThrottledUsec: c.ThrottledTime / 1000,
			NrBursts: c.Bursts, BurstUsec: c.BurstTime / 1000,
			PSI: pressureV2(s.Has&cgroups.HasCPUPressure != 0, &c.Pressure),
		}
	}
	if s.Has&(cgroups.HasMemory|cgroups.HasMemoryStat) != 0 {
		m.Memory = memoryV2(s)
	}
	if s.Has&cgroups.HasMemoryEvents != 0 {
		e := &s.Memory.Events
		m.MemoryEvents = &v2.MemoryEvents{
			Low: e.Low, High: e.High, Max: e.Max, Oom: e.OOM, OomKill: e.OOMKill, OomGroupKill: e.OOMGroupKill,
		}
	}
	if s.Has&cgroups.HasIO != 0 {
		m.Io = &v2.IOStat{PSI: pressureV2(s.Has&cgroups.HasIOPressure != 0, &s.IO.Pressure)}
		for i := range s.IO.Usage {
			u := &s.IO.Usage[i]
			m.Io.Usage = append(m.Io.Usage, &v2.IOEntry{
				Major: u.Major, Minor: u.Minor,
				Rbytes: u.ReadBytes, Wbytes: u.WriteBytes, Rios: u.ReadIOs, Wios: u.WriteIOs,
			})
		}
	}
	for i := range s.Hugetlb {
		h := &s.Hugetlb[i]
		m.Hugetlb = append(m.Hugetlb, &v2.HugeTlbStat{
			Current: h.Usage, Max: h.Max, Failcnt: h.Failcnt, Pagesize: pageSizeName(h.PageSize),
		})
	}
	if s.Has&cgroups.HasRdma != 0 {
		m.Rdma = &v2.RdmaStat{}
		for i := range s.Rdma {
			r := &s.Rdma[i]
			m.Rdma.Current = append(m.Rdma.Current, &v2.RdmaEntry{
				Device: r.Device, HcaHandles: uint32(clamp32(r.Handles)), HcaObjects: uint32(clamp32(r.Objects)),
			})
			m.Rdma.Limit = append(m.Rdma.Limit, &v2.RdmaEntry{
				Device: r.Device, HcaHandles: uint32(clamp32(r.HandleLimit)), HcaObjects: uint32(clamp32(r.ObjectLimit)),
			})
		}
	}
	return m
}

func memoryV2(s *cgroups.Stats) *v2.MemoryStat {
	st := &s.Memory.V2
	return &v2.MemoryStat{
		Anon: st.Anon, File: st.File, KernelStack: st.KernelStack, Slab: st.Slab, Sock: st.Sock, Shmem: st.Shmem,
		FileMapped: st.FileMapped, FileDirty: st.FileDirty, FileWriteback: st.FileWriteback, AnonThp: st.AnonTHP,
		InactiveAnon: st.InactiveAnon, ActiveAnon: st.ActiveAnon,
		InactiveFile: st.InactiveFile, ActiveFile: st.ActiveFile, Unevictable: st.Unevictable,
		SlabReclaimable: st.SlabReclaimable, SlabUnreclaimable: st.SlabUnreclaimable,
		Pgfault: st.PgFault, Pgmajfault: st.PgMajFault,
		WorkingsetRefault: st.WorkingsetRefault, WorkingsetActivate: st.WorkingsetActivate,
		WorkingsetNodereclaim: st.WorkingsetNodeReclaim,
		Pgrefill:              st.PgRefill, Pgscan: st.PgScan, Pgsteal: st.PgSteal,
		Pgactivate: st.PgActivate, Pgdeactivate: st.PgDeactivate,
		Pglazyfree: st.PgLazyFree, Pglazyfreed: st.PgLazyFreed,
		ThpFaultAlloc: st.THPFaultAlloc, ThpCollapseAlloc: st.THPCollapseAlloc,
		Usage: s.Memory.Memory.Usage, UsageLimit: s.Memory.Memory.Limit, MaxUsage: s.Memory.Memory.Max,
		SwapUsage: s.Memory.Swap.Usage, SwapLimit: s.Memory.Swap.Limit, SwapMaxUsage: s.Memory.Swap.Max,
		PSI: pressureV2(s.Has&cgroups.HasMemoryPressure != 0, &s.Memory.Pressure),
	}
}

func pressureV2(has bool, p *cgroups.Pressure) *v2.PSIStats {
	if !has {
		return nil
	}
	return &v2.PSIStats{Some: stallV2(&p.Some), Full: stallV2(&p.Full)}
}

func stallV2(s *cgroups.Stall) *v2.PSIData {
	return &v2.PSIData{
		Avg10: float64(s.Avg10) / 100, Avg60: float64(s.Avg60) / 100, Avg300: float64(s.Avg300) / 100, Total: s.Total,
	}
}
