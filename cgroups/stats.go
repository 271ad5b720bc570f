package cgroups

import (
	"math"

	"github.com/ibex-run/ibex/internal/scan"
)

// NoLimit is the value of a limit whose file says "max".
//
// Version 1 has no such word: a group without a limit there shows a number near
// 2^63, and that number is what Stats carries.
const NoLimit uint64 = math.MaxUint64

// Has tells which parts of a Stats were read. A part whose bit is not set was
// not there (the controller is absent, the kernel too old, pressure accounting
// off) and its fields are zero.
type Has uint32

// The parts of a Stats.
const (
	HasCPU            Has = 1 << iota // CPU.Usage, User, Kernel
	HasPerCPU                         // CPU.PerCPU
	HasThrottling                     // CPU.Periods, ThrottledPeriods, ThrottledTime
	HasBursts                         // CPU.Bursts, BurstTime
	HasCPUPressure                    // CPU.Pressure
	HasMemory                         // Memory.Memory.Usage, Limit
	HasMemoryPeak                     // Memory.Memory.Max
	HasMemoryStat                     // Memory.V1 or Memory.V2
	HasSwap                           // Memory.Swap.Usage, Limit
	HasSwapPeak                       // Memory.Swap.Max
	HasKernel                         // Memory.Kernel
	HasKernelTCP                      // Memory.KernelTCP
	HasOOMControl                     // Memory.OOMControl (version 1)
	HasMemoryEvents                   // Memory.Events (version 2)
	HasMemoryPressure                 // Memory.Pressure
	HasPids                           // Pids
	HasIO                             // IO.Usage (version 2)
	HasBlkio                          // IO.Entries (version 1)
	HasIOPressure                     // IO.Pressure
	HasHugetlb                        // Hugetlb
	HasRdma                           // Rdma
)

// Stats is one reading of a cgroup. A caller keeps one and gives it to Stat
// again and again: the slices are reused, so a warm reading allocates nothing.
// The zero value is ready.
type Stats struct {
	// Version is 1 or 2: the shape of the numbers, where the two differ. A
	// hybrid host counts as 1.
	Version int
	Has     Has

	CPU     CPUStats
	Memory  MemoryStats
	Pids    PidsStats
	IO      IOStats
	Hugetlb []HugetlbStats
	Rdma    []RdmaStats
}

// CPUStats is processor time and throttling.
type CPUStats struct {
	Usage  uint64 // ns, all time
	User   uint64 // ns, in user mode
	Kernel uint64 // ns, in kernel mode

	// PerCPU is Usage on each possible CPU in ns (version 1 only).
	PerCPU []uint64

	Periods          uint64 // enforcement periods that have elapsed
	ThrottledPeriods uint64 // periods in which the group was throttled
	ThrottledTime    uint64 // ns, sum over all CPUs

	Bursts    uint64 // periods in which a burst was used
	BurstTime uint64 // ns, above the quota

	Pressure Pressure
}

// Counter is a version 1 resource counter, or what version 2 has of one.
type Counter struct {
	Usage   uint64 // bytes
	Limit   uint64 // bytes; see NoLimit
	Max     uint64 // bytes, the highest usage since the group was made
	Failcnt uint64 // times the limit was hit (version 1 only)
}

// MemoryStats is the memory of the group and its descendants.
type MemoryStats struct {
	Memory Counter
	// Swap is memory and swap together on version 1 (memory.memsw.*), swap alone
	// on version 2 (memory.swap.*), as the kernel counts them.
	Swap      Counter
	Kernel    Counter // version 1 only
	KernelTCP Counter // version 1 only

	OOMControl OOMControl
	Events     MemoryEvents
	Pressure   Pressure

	V1 MemoryStatV1
	V2 MemoryStatV2
}

// OOMControl is memory.oom_control (version 1).
type OOMControl struct {
	KillDisable uint64 // 1 if the killer is off
	UnderOOM    uint64 // 1 if tasks may be stopped for want of memory
	Kill        uint64 // processes of this very group that were killed
}

// MemoryEvents is memory.events (version 2): counts, descendants included.
type MemoryEvents struct {
	Low, High, Max, OOM, OOMKill, OOMGroupKill uint64
}

// MemoryStatV1 is memory.stat of version 1. Sizes are in bytes, events in pages
// (PgPgIn, PgPgOut) or faults. The Total fields include the descendants.
type MemoryStatV1 struct {
	Cache, RSS, RSSHuge, Shmem, MappedFile, Dirty, Writeback, Swap  uint64
	PgPgIn, PgPgOut, PgFault, PgMajFault                            uint64
	InactiveAnon, ActiveAnon, InactiveFile, ActiveFile, Unevictable uint64

	HierarchicalMemoryLimit, HierarchicalSwapLimit uint64

	TotalCache, TotalRSS, TotalRSSHuge, TotalShmem, TotalMappedFile, TotalDirty, TotalWriteback, TotalSwap uint64
	TotalPgPgIn, TotalPgPgOut, TotalPgFault, TotalPgMajFault                                               uint64
	TotalInactiveAnon, TotalActiveAnon, TotalInactiveFile, TotalActiveFile, TotalUnevictable               uint64
}

// MemoryStatV2 is memory.stat of version 2, descendants included. Sizes are in
// bytes, events in pages or faults.
type MemoryStatV2 struct {
	Anon, File, Kernel, KernelStack, Slab, Sock, Shmem              uint64
	FileMapped, FileDirty, FileWriteback, AnonTHP                   uint64
	InactiveAnon, ActiveAnon, InactiveFile, ActiveFile, Unevictable uint64
	SlabReclaimable, SlabUnreclaimable                              uint64
	PgFault, PgMajFault                                             uint64

	// WorkingsetRefault and WorkingsetActivate are the sums over anonymous and
	// file pages. Linux 5.9 split the lines in two, commit 170b04b7ae49.
	WorkingsetRefault, WorkingsetActivate, WorkingsetNodeReclaim uint64

	PgRefill, PgScan, PgSteal, PgActivate, PgDeactivate, PgLazyFree, PgLazyFreed uint64
	THPFaultAlloc, THPCollapseAlloc                                              uint64
}

// PidsStats is the number of tasks.
type PidsStats struct {
	Current uint64
	Limit   uint64 // NoLimit if there is none
}

// Pressure is a file of pressure stall information.
type Pressure struct {
	Some, Full Stall
}

// Stall is one line of it.
type Stall struct {
	Avg10, Avg60, Avg300 uint64 // hundredths of a percent
	Total                uint64 // µs
}

// IOStats is block device traffic.
type IOStats struct {
	Usage    []IOUsage // version 2
	Entries  []IOEntry // version 1
	Pressure Pressure
}

// IOUsage is one line of io.stat.
type IOUsage struct {
	Major, Minor                             uint64
	ReadBytes, WriteBytes, ReadIOs, WriteIOs uint64
	DiscardBytes, DiscardIOs                 uint64
}

// IOOp is the kind of operation that a version 1 counter counts.
type IOOp uint8

// The operations of version 1. OpNone is for counters that do not tell.
const (
	OpNone IOOp = iota
	OpRead
	OpWrite
	OpSync
	OpAsync
	OpDiscard
	OpTotal
)

// String gives the kernel's word.
func (o IOOp) String() string {
	return [...]string{"", "Read", "Write", "Sync", "Async", "Discard", "Total"}[min(o, OpTotal)]
}

// IOKind is the file that a version 1 counter comes from.
type IOKind uint8

// The counters of version 1.
const (
	IOServiceBytes IOKind = iota // bytes
	IOServiced                   // operations
	IOQueued                     // operations
	IOServiceTime                // ns
	IOWaitTime                   // ns
	IOMerged                     // operations
	IOTime                       // ms
	IOSectors                    // sectors of 512 bytes
)

// IOEntry is one counter of one device (version 1), descendants included.
type IOEntry struct {
	Kind         IOKind
	Op           IOOp
	Major, Minor uint64
	Value        uint64
}

// HugetlbStats is the use of one size of huge pages.
type HugetlbStats struct {
	PageSize uint64 // bytes
	Usage    uint64 // bytes
	Max      uint64 // bytes: the highest usage on version 1, the limit on version 2
	Failcnt  uint64
}

// RdmaStats is the use of one RDMA device.
type RdmaStats struct {
	Device                   string
	Handles, Objects         uint64
	HandleLimit, ObjectLimit uint64 // NoLimit if there is none
}

// Reset forgets a reading and keeps the memory of its slices.
func (s *Stats) Reset(version int) {
	perCPU, usage, entries := s.CPU.PerCPU[:0], s.IO.Usage[:0], s.IO.Entries[:0]
	hugetlb, rdma := s.Hugetlb[:0], s.Rdma[:0]
	*s = Stats{Version: version, Hugetlb: hugetlb, Rdma: rdma}
	s.CPU.PerCPU, s.IO.Usage, s.IO.Entries = perCPU, usage, entries
}

// OOMKills is the number of OOM kills in the reading.
func (s *Stats) OOMKills() uint64 {
	if s.Version == 2 {
		return s.Memory.Events.OOMKill
	}
	return s.Memory.OOMControl.Kill
}

// Clone copies a reading to memory of its own.
func (s *Stats) Clone() *Stats {
	c := *s
	c.CPU.PerCPU = append([]uint64(nil), s.CPU.PerCPU...)
	c.IO.Usage = append([]IOUsage(nil), s.IO.Usage...)
	c.IO.Entries = append([]IOEntry(nil), s.IO.Entries...)
	c.Hugetlb = append([]HugetlbStats(nil), s.Hugetlb...)
	c.Rdma = append([]RdmaStats(nil), s.Rdma...)
	return &c
}

// Set sets the field that a pressure file calls key. Unknown keys are skipped;
// ok is false for a value that is no number.
func (s *Stall) Set(key, value []byte) (ok bool) {
	switch string(key) {
	case "avg10":
		s.Avg10, ok = scan.Hundredths(value)
	case "avg60":
		s.Avg60, ok = scan.Hundredths(value)
	case "avg300":
		s.Avg300, ok = scan.Hundredths(value)
	case "total":
		s.Total, ok = scan.Uint(value)
	default:
		return true
	}
	return ok
}
