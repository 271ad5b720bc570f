package shim

import (
	"strconv"
	"sync"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/shim/wire"
)

// reading is the answer to Stats: a reading as the message that containerd and
// the CRI plugin decode. What was not read is not there. A shim answers every
// second or so for each container, so nothing is made anew for it.
type reading struct {
	wire.StatsResponse
	any   wire.Any
	stats cgroups.Stats
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// Release implements rpc.Releaser.
func (r *reading) Release() { readings.Put(r) }

// wrap makes the answer of the reading.
func (r *reading) wrap() {
	if r.stats.Version == 2 {
		r.any = wire.Any{TypeURL: "io.containerd.cgroups.v2.Metrics", Body: (*metricsV2)(&r.stats)}
	} else {
		r.any = wire.Any{TypeURL: "io.containerd.cgroups.v1.Metrics", Body: (*metricsV1)(&r.stats)}
	}
	r.StatsResponse.Stats = &r.any
}

// metricsV1 is io.containerd.cgroups.v1.Metrics (cgroup1/stats/metrics.proto of
// containerd/cgroups).
type metricsV1 cgroups.Stats

// Fields implements wire.Message, for encoding only.
func (s *metricsV1) Fields(c *wire.Coder) {
	for i := range s.Hugetlb {
		h := &s.Hugetlb[i]
		at := c.Open(1)
		numbers(c, 1, h.Usage, h.Max, h.Failcnt)
		c.PutString(4, pageSizeName(h.PageSize))
		c.Close(at)
	}
	if s.Has&cgroups.HasPids != 0 {
		// 0 is "no limit" here, as containerd's own reader has it.
		message(c, 2, s.Pids.Current, zeroForNone(s.Pids.Limit))
	}
	if s.Has&(cgroups.HasCPU|cgroups.HasPerCPU|cgroups.HasThrottling) != 0 {
		cpu := c.Open(3)
		usage := c.Open(1)
		numbers(c, 1, s.CPU.Usage, s.CPU.Kernel, s.CPU.User)
		c.PutUints(4, s.CPU.PerCPU)
		c.Close(usage)
		message(c, 2, s.CPU.Periods, s.CPU.ThrottledPeriods, s.CPU.ThrottledTime)
		c.Close(cpu)
	}
	if s.Has&(cgroups.HasMemory|cgroups.HasMemoryStat) != 0 {
		at := c.Open(4)
		s.memory(c)
		c.Close(at)
	}
	if s.Has&cgroups.HasBlkio != 0 {
		at := c.Open(5)
		s.blkio(c)
		c.Close(at)
	}
	putRdma(c, 6, (*cgroups.Stats)(s))
	if s.Has&cgroups.HasOOMControl != 0 {
		o := &s.Memory.OOMControl
		message(c, 9, o.KillDisable, o.UnderOOM, o.Kill)
	}
}

func (s *metricsV1) memory(c *wire.Coder) {
	st := &s.Memory.V1
	numbers(c, 1, st.Cache, st.RSS, st.RSSHuge, st.MappedFile, st.Dirty, st.Writeback,
		st.PgPgIn, st.PgPgOut, st.PgFault, st.PgMajFault,
		st.InactiveAnon, st.ActiveAnon, st.InactiveFile, st.ActiveFile, st.Unevictable,
		st.HierarchicalMemoryLimit, st.HierarchicalSwapLimit)
	numbers(c, 18, st.TotalCache, st.TotalRSS, st.TotalRSSHuge, st.TotalMappedFile, st.TotalDirty, st.TotalWriteback,
		st.TotalPgPgIn, st.TotalPgPgOut, st.TotalPgFault, st.TotalPgMajFault,
		st.TotalInactiveAnon, st.TotalActiveAnon, st.TotalInactiveFile, st.TotalActiveFile, st.TotalUnevictable)
	counter(c, 33, &s.Memory.Memory)
	if s.Has&cgroups.HasSwap != 0 {
		counter(c, 34, &s.Memory.Swap)
	}
	if s.Has&cgroups.HasKernel != 0 {
		counter(c, 35, &s.Memory.Kernel)
	}
	if s.Has&cgroups.HasKernelTCP != 0 {
		counter(c, 36, &s.Memory.KernelTCP)
	}
}

func counter(c *wire.Coder, n int, m *cgroups.Counter) {
	message(c, n, m.Limit, m.Usage, m.Max, m.Failcnt)
}

// blkioFields are the numbers of the lists, by kind.
var blkioFields = [...]int{
	cgroups.IOServiceBytes: 1,
	cgroups.IOServiced:     2,
	cgroups.IOQueued:       3,
	cgroups.IOServiceTime:  4,
	cgroups.IOWaitTime:     5,
	cgroups.IOMerged:       6,
	cgroups.IOTime:         7,
	cgroups.IOSectors:      8,
}

func (s *metricsV1) blkio(c *wire.Coder) {
	for i := range s.IO.Entries {
		e := &s.IO.Entries[i]
		if int(e.Kind) >= len(blkioFields) {
			continue
		}
		at := c.Open(blkioFields[e.Kind])
		c.PutString(1, e.Op.String())
		numbers(c, 3, e.Major, e.Minor, e.Value) // 2 is a name that the kernel does not tell
		c.Close(at)
	}
}

// metricsV2 is io.containerd.cgroups.v2.Metrics (cgroup2/stats/metrics.proto).
type metricsV2 cgroups.Stats

// Fields implements wire.Message, for encoding only.
func (s *metricsV2) Fields(c *wire.Coder) {
	if s.Has&cgroups.HasPids != 0 {
		message(c, 1, s.Pids.Current, s.Pids.Limit)
	}
	if s.Has&cgroups.HasCPU != 0 {
		at := c.Open(2)
		numbers(c, 1, s.CPU.Usage/1000, s.CPU.User/1000, s.CPU.Kernel/1000,
			s.CPU.Periods, s.CPU.ThrottledPeriods, s.CPU.ThrottledTime/1000)
		pressure(c, 7, s.Has&cgroups.HasCPUPressure != 0, &s.CPU.Pressure)
		numbers(c, 8, s.CPU.Bursts, s.CPU.BurstTime/1000)
		c.Close(at)
	}
	if s.Has&(cgroups.HasMemory|cgroups.HasMemoryStat) != 0 {
		at := c.Open(4)
		s.memory(c)
		c.Close(at)
	}
	putRdma(c, 5, (*cgroups.Stats)(s))
	if s.Has&cgroups.HasIO != 0 {
		at := c.Open(6)
		for i := range s.IO.Usage {
			u := &s.IO.Usage[i]
			message(c, 1, u.Major, u.Minor, u.ReadBytes, u.WriteBytes, u.ReadIOs, u.WriteIOs)
		}
		pressure(c, 2, s.Has&cgroups.HasIOPressure != 0, &s.IO.Pressure)
		c.Close(at)
	}
	for i := range s.Hugetlb {
		h := &s.Hugetlb[i]
		at := c.Open(7)
		numbers(c, 1, h.Usage, h.Max)
		c.PutString(3, pageSizeName(h.PageSize))
		c.PutUint(4, h.Failcnt)
		c.Close(at)
	}
	if s.Has&cgroups.HasMemoryEvents != 0 {
		e := &s.Memory.Events
		message(c, 8, e.Low, e.High, e.Max, e.OOM, e.OOMKill, e.OOMGroupKill)
	}
}

func (s *metricsV2) memory(c *wire.Coder) {
	st := &s.Memory.V2
	numbers(c, 1, st.Anon, st.File, st.KernelStack, st.Slab, st.Sock, st.Shmem,
		st.FileMapped, st.FileDirty, st.FileWriteback, st.AnonTHP,
		st.InactiveAnon, st.ActiveAnon, st.InactiveFile, st.ActiveFile, st.Unevictable,
		st.SlabReclaimable, st.SlabUnreclaimable)
	numbers(c, 18, st.PgFault, st.PgMajFault,
		st.WorkingsetRefault, st.WorkingsetActivate, st.WorkingsetNodeReclaim,
		st.PgRefill, st.PgScan, st.PgSteal, st.PgActivate, st.PgDeactivate, st.PgLazyFree, st.PgLazyFreed,
		st.THPFaultAlloc, st.THPCollapseAlloc)
	m, swap := &s.Memory.Memory, &s.Memory.Swap
	numbers(c, 32, m.Usage, m.Limit, swap.Usage, swap.Limit, m.Max, swap.Max)
	pressure(c, 38, s.Has&cgroups.HasMemoryPressure != 0, &s.Memory.Pressure)
}

func pressure(c *wire.Coder, n int, has bool, p *cgroups.Pressure) {
	if !has {
		return
	}
	at := c.Open(n)
	stall(c, 1, &p.Some)
	stall(c, 2, &p.Full)
	c.Close(at)
}

func stall(c *wire.Coder, n int, s *cgroups.Stall) {
	at := c.Open(n)
	c.PutFloat(1, float64(s.Avg10)/100)
	c.PutFloat(2, float64(s.Avg60)/100)
	c.PutFloat(3, float64(s.Avg300)/100)
	c.PutUint(4, s.Total)
	c.Close(at)
}

// putRdma is the same in both versions.
func putRdma(c *wire.Coder, n int, s *cgroups.Stats) {
	if s.Has&cgroups.HasRdma == 0 {
		return
	}
	at := c.Open(n)
	for i := range s.Rdma {
		rdmaEntry(c, 1, s.Rdma[i].Device, s.Rdma[i].Handles, s.Rdma[i].Objects)
	}
	for i := range s.Rdma {
		rdmaEntry(c, 2, s.Rdma[i].Device, s.Rdma[i].HandleLimit, s.Rdma[i].ObjectLimit)
	}
	c.Close(at)
}

func rdmaEntry(c *wire.Coder, n int, device string, handles, objects uint64) {
	at := c.Open(n)
	c.PutString(1, device)
	numbers(c, 2, clamp32(handles), clamp32(objects))
	c.Close(at)
}

// message is a field that is a message of numbers, from 1 on.
func message(c *wire.Coder, n int, values ...uint64) {
	at := c.Open(n)
	numbers(c, 1, values...)
	c.Close(at)
}

// numbers are fields with numbers that follow on each other.
func numbers(c *wire.Coder, first int, values ...uint64) {
	for i, v := range values {
		c.PutUint(first+i, v)
	}
}

func zeroForNone(limit uint64) uint64 {
	if limit == cgroups.NoLimit {
		return 0
	}
	return limit
}

// clamp32 fits a number into a field of 32 bits.
func clamp32(v uint64) uint64 { return min(v, 1<<32-1) }

// pageSizeName is the kernel's spelling in hugetlb file names, such as 2MB.
func pageSizeName(bytes uint64) string {
	units := [...]string{"B", "KB", "MB", "GB", "TB", "PB"}
	i := 0
	for bytes >= 1024 && i < len(units)-1 {
		bytes >>= 10
		i++
	}
	return strconv.FormatUint(bytes, 10) + units[i]
}
