package cgroup1

import (
	"fmt"
	"os"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
)

// current is what the order of the writes depends on. Each field is the file's
// value before the first write.
type current struct {
	Memory, Memsw  uint64 // bytes
	HasMemsw       bool
	Quota          int64  // µs, -1 for none
	Period, Burst  uint64 // µs
	RealtimePeriod uint64 // µs
	Idle           bool
	WeightFile     string // blkio.weight, or blkio.bfq.weight, or empty
}

// writes compiles everything of res but the devices into a list of writes, in an
// order that the kernel takes from the state cur. Fields that are not set are
// not touched.
func writes(res *specs.LinuxResources, cur current) ([]cgroups.Write, error) {
	if err := cgroups.Validate(res); err != nil {
		return nil, err
	}
	if res == nil {
		return nil, nil
	}
	if len(res.Unified) > 0 {
		return nil, cgroups.Missing("unified", "cgroup v2 controllers")
	}
	var l list
	l.cpuset(res.CPU)
	l.cpu(res.CPU, cur)
	if err := l.memory(res.Memory, cur); err != nil {
		return nil, err
	}
	l.pids(res.Pids)
	l.blkio(res.BlockIO, cur)
	l.hugetlb(res.HugepageLimits)
	l.writes = append(l.writes, cgroups.RdmaWrites(res, "rdma")...)
	l.network(res.Network)
	return l.writes, nil
}

// list grows a list of writes.
type list struct{ writes []cgroups.Write }

func (l *list) add(w cgroups.Write) { l.writes = append(l.writes, w) }

// number adds a write of a number that reads back as it is.
func (l *list) number(field, controller, file string, n int64) {
	l.add(cgroups.Write{Field: field, Controller: controller, File: file, Value: strconv.FormatInt(n, 10), Check: cgroups.CheckSame})
}

func (l *list) cpuset(c *specs.LinuxCPU) {
	if c == nil {
		return
	}
	for _, f := range []struct{ field, file, value string }{
		{"cpu.cpus", "cpuset.cpus", c.Cpus},
		{"cpu.mems", "cpuset.mems", c.Mems},
	} {
		if f.value != "" {
			l.add(cgroups.Write{Field: f.field, Controller: "cpuset", File: f.file, Value: f.value, Check: cgroups.CheckList})
		}
	}
}

func (l *list) cpu(c *specs.LinuxCPU, cur current) {
	if c == nil {
		return
	}
	l.realtime(c, cur)
	shares := func() {
		if s := cgroups.Value(c.Shares); s != 0 {
			l.number("cpu.shares", "cpu", "cpu.shares", int64(s))
		}
	}
	// An idle group has no shares to set: EINVAL, sched_group_set_shares in
	// kernel/sched/fair.c. So they are set before it becomes idle and after it
	// ceases to be.
	if c.Idle != nil && *c.Idle == 0 {
		l.number("cpu.idle", "cpu", "cpu.idle", 0)
		shares()
	} else {
		shares()
		if c.Idle != nil {
			l.number("cpu.idle", "cpu", "cpu.idle", *c.Idle)
			if !cur.Idle {
				l.writes[len(l.writes)-1].Saves = "cpu.shares"
			}
		}
	}
	l.bandwidth(c, cur)
}

// bandwidth orders quota, period and burst.
//
// The kernel wants the group's quota/period to be at most its parent's at every
// moment (tg_cfs_schedulable_down, kernel/sched/core.c). Of the two states
// between, new period with old quota and new quota with old period, one has a
// ratio that is no larger than the old or the new ratio: that with the longer
// period.
//
// It also wants the burst to be at most the quota, so a smaller burst goes
// first and a larger one last.
func (l *list) bandwidth(c *specs.LinuxCPU, cur current) {
	burst := func() { l.number("cpu.burst", "cpu", "cpu.cfs_burst_us", int64(*c.Burst)) }
	early := c.Burst != nil && *c.Burst < cur.Burst
	if early {
		burst()
	}
	quota := func() {
		if q := cgroups.Value(c.Quota); q != 0 {
			l.number("cpu.quota", "cpu", "cpu.cfs_quota_us", max(q, -1))
		}
	}
	if p := cgroups.Value(c.Period); p == 0 {
		quota()
	} else if p >= cur.Period {
		l.number("cpu.period", "cpu", "cpu.cfs_period_us", int64(p))
		quota()
	} else {
		quota()
		l.number("cpu.period", "cpu", "cpu.cfs_period_us", int64(p))
	}
	if c.Burst != nil && !early {
		burst()
	}
}

// realtime orders like bandwidth, whose rule it shares (tg_rt_schedulable,
// kernel/sched/rt.c).
func (l *list) realtime(c *specs.LinuxCPU, cur current) {
	period := func() {
		if p := cgroups.Value(c.RealtimePeriod); p != 0 {
			l.number("cpu.realtimePeriod", "cpu", "cpu.rt_period_us", int64(p))
		}
	}
	grows := cgroups.Value(c.RealtimePeriod) >= cur.RealtimePeriod
	if grows {
		period()
	}
	if r := cgroups.Value(c.RealtimeRuntime); r != 0 {
		l.number("cpu.realtimeRuntime", "cpu", "cpu.rt_runtime_us", max(r, -1))
	}
	if !grows {
		period()
	}
}

func (l *list) bytes(field, file string, n int64) {
	l.add(cgroups.Write{
		Field: field, Controller: "memory", File: file, Value: strconv.FormatInt(n, 10),
		Check: bytesCheck(n), PageSize: uint64(os.Getpagesize()),
	})
}

// bytesCheck: without a limit the file shows a number near 2^63 for -1.
func bytesCheck(n int64) cgroups.Check {
	if n < 0 {
		return cgroups.CheckNone
	}
	return cgroups.CheckPages
}

func (l *list) memory(m *specs.LinuxMemory, cur current) error {
	if m == nil {
		return nil
	}
	if m.UseHierarchy != nil && !*m.UseHierarchy {
		// Always on since Linux 5.11, commit bef8620cd8e0. Before it, the parent
		// decided.
		return cgroups.Invalid("memory.useHierarchy", "cannot be turned off")
	}
	if err := l.memoryAndSwap(m, cur); err != nil {
		return err
	}
	if r := cgroups.Value(m.Reservation); r != 0 {
		l.bytes("memory.reservation", "memory.soft_limit_in_bytes", r)
	}
	// memory.kernel is not written: "may be ignored by runtimes" - runtime-spec;
	// the kernel has ignored it since Linux 5.16, commit 58056f77502f.
	if r := cgroups.Value(m.KernelTCP); r != 0 {
		l.bytes("memory.kernelTCP", "memory.kmem.tcp.limit_in_bytes", r)
	}
	if m.DisableOOMKiller != nil {
		n := "0"
		if *m.DisableOOMKiller {
			n = "1"
		}
		l.add(cgroups.Write{
			Field: "memory.disableOOMKiller", Controller: "memory", File: "memory.oom_control", Value: n,
			Key: "oom_kill_disable", Bare: true,
		})
	}
	if s := m.Swappiness; s != nil && *s <= 100 {
		l.number("memory.swappiness", "memory", "memory.swappiness", int64(*s))
	}
	return nil
}

// memoryAndSwap orders the two limits: at every moment the one for memory must
// not be above the one for memory and swap (mem_cgroup_resize_max,
// mm/memcontrol-v1.c). If the new sum is not below the old memory limit, the
// sum may go first; otherwise the new memory limit, which is below the new sum,
// is below the old sum, too, and goes first.
func (l *list) memoryAndSwap(m *specs.LinuxMemory, cur current) error {
	limit, swap := cgroups.Value(m.Limit), cgroups.Value(m.Swap)
	if limit == -1 && swap == 0 {
		swap = -1 // memory without a limit below a sum with one cannot be
	}
	if limit == -1 && swap > 0 {
		return cgroups.Invalid("memory.swap", "is memory and swap together and cannot be below memory.limit, which is none")
	}
	if swap == -1 && !cur.HasMemsw {
		swap = 0 // there is no limit to lift
	}
	if swap > 0 && limit == 0 && uint64(swap) < cur.Memory {
		return cgroups.Invalid("memory.swap", "is memory and swap together and needs memory.limit beside it")
	}
	if cur.HasMemsw && swap == 0 && limit > 0 && uint64(limit) > cur.Memsw {
		return cgroups.Invalid("memory.limit", fmt.Sprintf(
			"%d is above the limit of memory and swap together, %d, and needs memory.swap beside it", limit, cur.Memsw))
	}
	writeSwap := func() {
		if swap != 0 {
			l.bytes("memory.swap", "memory.memsw.limit_in_bytes", swap)
		}
	}
	first := swap == -1 || swap > 0 && uint64(swap) >= cur.Memory
	if first {
		writeSwap()
	}
	if limit != 0 {
		l.bytes("memory.limit", "memory.limit_in_bytes", limit)
	}
	if !first {
		writeSwap()
	}
	return nil
}

// pids: no process at all cannot be had, since the container's own is one, so 0
// is 1.
func (l *list) pids(p *specs.LinuxPids) {
	if p == nil || p.Limit == nil {
		return
	}
	w := cgroups.Write{Field: "pids.limit", Controller: "pids", File: "pids.max", Value: "max", Check: cgroups.CheckSame}
	if n := *p.Limit; n >= 0 {
		w.Value = strconv.FormatInt(max(n, 1), 10)
	}
	l.add(w)
}

// blkio: blkio.weight went with the CFQ scheduler in Linux 5.0, commit
// f382fb0bcef4. BFQ's file has its own name; where it is missing the error names
// the file.
func (l *list) blkio(b *specs.LinuxBlockIO, cur current) {
	if b == nil {
		return
	}
	file := cur.WeightFile
	if file == "" {
		file = "blkio.weight"
	}
	add := func(field, file, value, key, absent string) {
		l.add(cgroups.Write{Field: field, Controller: "blkio", File: file, Value: value, Key: key, Absent: absent})
	}
	if w := cgroups.Value(b.Weight); w != 0 {
		add("blockIO.weight", file, strconv.Itoa(int(w)), "", "")
	}
	if w := cgroups.Value(b.LeafWeight); w != 0 {
		add("blockIO.leafWeight", "blkio.leaf_weight", strconv.Itoa(int(w)), "", "")
	}
	for _, d := range b.WeightDevice {
		dev := fmt.Sprintf("%d:%d", d.Major, d.Minor)
		if w := cgroups.Value(d.Weight); w != 0 {
			add("blockIO.weightDevice", file+"_device", fmt.Sprintf("%s %d", dev, w), dev, dev+" 0")
		}
		if w := cgroups.Value(d.LeafWeight); w != 0 {
			add("blockIO.weightDevice", "blkio.leaf_weight_device", fmt.Sprintf("%s %d", dev, w), dev, dev+" 0")
		}
	}
	for _, t := range cgroups.Throttles(b) {
		for _, d := range t.Devices {
			dev := fmt.Sprintf("%d:%d", d.Major, d.Minor)
			add(t.Field, t.V1File, fmt.Sprintf("%s %d", dev, d.Rate), dev, dev+" 0")
		}
	}
}

// hugetlb sets the limits of use and, "if supported" - runtime-spec, those of
// reservations (Linux 5.7, commit e9fe92ae0cd2).
func (l *list) hugetlb(limits []specs.LinuxHugepageLimit) {
	for _, h := range limits {
		size, _ := cgroups.PageSize(h.Pagesize) // checked by Validate
		w := cgroups.Write{
			Field: "hugepageLimits." + h.Pagesize, Controller: "hugetlb",
			File: "hugetlb." + h.Pagesize + ".limit_in_bytes", Value: strconv.FormatUint(h.Limit, 10),
			Check: cgroups.CheckPages, PageSize: size,
		}
		l.add(w)
		w.File, w.Optional = "hugetlb."+h.Pagesize+".rsvd.limit_in_bytes", true
		l.add(w)
	}
}

func (l *list) network(n *specs.LinuxNetwork) {
	if n == nil {
		return
	}
	if n.ClassID != nil {
		l.number("network.classID", "net_cls", "net_cls.classid", int64(*n.ClassID))
	}
	for _, p := range n.Priorities {
		l.add(cgroups.Write{
			Field: "network.priorities", Controller: "net_prio", File: "net_prio.ifpriomap",
			Value: fmt.Sprintf("%s %d", p.Name, p.Priority), Key: p.Name, Absent: p.Name + " 0",
		})
	}
}
