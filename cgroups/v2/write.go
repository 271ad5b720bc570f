package cgroup2

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// current is what the values and the order of the writes depend on. Each field
// is the file's value before the first write.
type current struct {
	Quota, Period, Burst uint64 // µs; the quota is cgroups.NoLimit for "max"
	Memory               uint64 // bytes
	BFQ                  bool   // io.bfq.weight is there
	Idle                 bool
}

// writes compiles everything of res but the devices into a list of writes, in an
// order that the kernel takes from the state cur. Fields that are not set are
// not touched. The keys of unified come last, so that they win over what was
// derived from version 1 numbers.
func writes(res *specs.LinuxResources, cur current) ([]cgroups.Write, error) {
	if err := cgroups.Validate(res); err != nil {
		return nil, err
	}
	if res == nil {
		return nil, nil
	}
	if err := refuseV1Only(res); err != nil {
		return nil, err
	}
	var l list
	l.cpuset(res.CPU)
	l.cpu(res.CPU, cur)
	if err := l.memory(res.Memory, cur); err != nil {
		return nil, err
	}
	l.pids(res.Pids)
	l.io(res.BlockIO, cur)
	l.hugetlb(res.HugepageLimits)
	l.writes = append(l.writes, cgroups.RdmaWrites(res, "")...)
	if err := l.unified(res.Unified); err != nil {
		return nil, err
	}
	return l.writes, nil
}

// refuseV1Only names the limits that version 2 has no counterpart of. A value
// that asks for nothing passes.
func refuseV1Only(res *specs.LinuxResources) error {
	v1 := func(field string, asked bool) error {
		if asked {
			return &cgroups.ResourceError{Field: field, Err: cgroups.ErrNoController, Text: "cgroup v2 has no such limit"}
		}
		return nil
	}
	var errs []error
	if m := res.Memory; m != nil {
		errs = append(errs,
			v1("memory.kernelTCP", cgroups.Value(m.KernelTCP) > 0),
			v1("memory.swappiness", m.Swappiness != nil && *m.Swappiness != 1<<64-1),
			v1("memory.disableOOMKiller", cgroups.Value(m.DisableOOMKiller)))
	}
	if c := res.CPU; c != nil {
		errs = append(errs,
			v1("cpu.realtimeRuntime", cgroups.Value(c.RealtimeRuntime) > 0),
			v1("cpu.realtimePeriod", cgroups.Value(c.RealtimePeriod) > 0))
	}
	if b := res.BlockIO; b != nil {
		errs = append(errs, v1("blockIO.leafWeight", cgroups.Value(b.LeafWeight) != 0))
		for _, d := range b.WeightDevice {
			errs = append(errs, v1("blockIO.weightDevice", cgroups.Value(d.LeafWeight) != 0))
		}
	}
	if n := res.Network; n != nil {
		errs = append(errs, v1("network.classID", cgroups.Value(n.ClassID) != 0), v1("network.priorities", len(n.Priorities) > 0))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// list grows a list of writes.
type list struct{ writes []cgroups.Write }

func (l *list) add(w cgroups.Write) { l.writes = append(l.writes, w) }

// text adds a write of a value that reads back as it is.
func (l *list) text(field, file, value string) {
	l.add(cgroups.Write{Field: field, File: file, Value: value, Check: cgroups.CheckSame})
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
			l.add(cgroups.Write{Field: f.field, File: f.file, Value: f.value, Check: cgroups.CheckList})
		}
	}
}

func (l *list) cpu(c *specs.LinuxCPU, cur current) {
	if c == nil {
		return
	}
	weight := func() {
		if w := cgroups.Weight(cgroups.Value(c.Shares)); w != 0 {
			l.text("cpu.shares", "cpu.weight", strconv.FormatUint(w, 10))
		}
	}
	// An idle group has no weight to set: EINVAL, sched_group_set_shares in
	// kernel/sched/fair.c. So it is set before it becomes idle and after it
	// ceases to be.
	if c.Idle != nil && *c.Idle == 0 {
		l.text("cpu.idle", "cpu.idle", "0")
		weight()
	} else {
		weight()
		if c.Idle != nil {
			l.text("cpu.idle", "cpu.idle", "1")
			if !cur.Idle {
				l.writes[len(l.writes)-1].Saves = "cpu.weight"
			}
		}
	}
	l.bandwidth(c, cur)
}

// bandwidth writes quota and period in one, with the present value of the one
// that is not named. The burst must not be above the quota (tg_set_cfs_bandwidth,
// kernel/sched/core.c): a smaller one goes first and a larger one last.
func (l *list) bandwidth(c *specs.LinuxCPU, cur current) {
	burst := func() { l.text("cpu.burst", "cpu.max.burst", strconv.FormatUint(*c.Burst, 10)) }
	early := c.Burst != nil && *c.Burst < cur.Burst
	if early {
		burst()
	}
	quota, period := cgroups.Value(c.Quota), cgroups.Value(c.Period)
	if quota != 0 || period != 0 {
		q := number(cur.Quota)
		switch {
		case quota > 0:
			q = strconv.FormatInt(quota, 10)
		case quota < 0:
			q = "max"
		}
		field := "cpu.quota"
		if quota == 0 {
			field = "cpu.period"
		}
		if period == 0 {
			period = cur.Period
		}
		l.text(field, "cpu.max", q+" "+strconv.FormatUint(period, 10))
	}
	if c.Burst != nil && !early {
		burst()
	}
}

func number(n uint64) string {
	if n == cgroups.NoLimit {
		return "max"
	}
	return strconv.FormatUint(n, 10)
}

// bytes adds a write of a number of bytes; -1 is no limit.
func (l *list) bytes(field, file string, n int64, optional bool) {
	w := cgroups.Write{
		Field: field, File: file, Value: "max", Check: cgroups.CheckSame, Optional: optional,
	}
	if n >= 0 {
		w.Value, w.Check, w.PageSize = strconv.FormatInt(n, 10), cgroups.CheckPages, uint64(os.Getpagesize())
	}
	l.add(w)
}

func (l *list) memory(m *specs.LinuxMemory, cur current) error {
	if m == nil {
		return nil
	}
	limit, swap := cgroups.Value(m.Limit), cgroups.Value(m.Swap)
	base := limit
	if base == 0 && swap > 0 && cur.Memory < 1<<62 {
		base = int64(cur.Memory) // an update of the sum alone
	}
	value, set, err := cgroups.SwapMax(base, swap)
	if err != nil {
		return err
	}
	if set {
		// Without swap, or without its accounting, there is no file, and no limit
		// and no swap are what there is anyway.
		l.bytes("memory.swap", "memory.swap.max", value, value <= 0)
	}
	if limit != 0 {
		l.bytes("memory.limit", "memory.max", limit, false)
	}
	if r := cgroups.Value(m.Reservation); r != 0 {
		l.bytes("memory.reservation", "memory.low", r, false)
	}
	return nil
}

// pids: no process at all cannot be had, since the container's own is one, so 0
// is 1.
func (l *list) pids(p *specs.LinuxPids) {
	if p == nil || p.Limit == nil {
		return
	}
	value := "max"
	if n := *p.Limit; n >= 0 {
		value = strconv.FormatInt(max(n, 1), 10)
	}
	l.text("pids.limit", "pids.max", value)
}

// io: with BFQ the weight is written as it is, since io.bfq.weight has the range
// of version 1; otherwise it is converted for io.weight. BFQ has weights of
// devices since Linux 5.4, commit 795fe54c2a8a.
func (l *list) io(b *specs.LinuxBlockIO, cur current) {
	if b == nil {
		return
	}
	file, convert := "io.weight", cgroups.IOWeight
	if cur.BFQ {
		file, convert = "io.bfq.weight", func(w uint16) uint64 { return uint64(w) }
	}
	if w := cgroups.Value(b.Weight); w != 0 {
		l.add(cgroups.Write{
			Field: "blockIO.weight", File: file, Value: "default " + strconv.FormatUint(convert(w), 10),
			Key: "default", Absent: "default 100",
		})
	}
	for _, d := range b.WeightDevice {
		if w := cgroups.Value(d.Weight); w != 0 {
			dev := fmt.Sprintf("%d:%d", d.Major, d.Minor)
			l.add(cgroups.Write{
				Field: "blockIO.weightDevice", File: file, Value: dev + " " + strconv.FormatUint(convert(w), 10),
				Key: dev, Absent: dev + " default",
			})
		}
	}
	for _, t := range cgroups.Throttles(b) {
		for _, d := range t.Devices {
			dev, rate := fmt.Sprintf("%d:%d", d.Major, d.Minor), "max"
			if d.Rate != 0 {
				rate = strconv.FormatUint(d.Rate, 10)
			}
			l.add(cgroups.Write{
				Field: t.Field, File: "io.max", Value: dev + " " + t.V2Key + "=" + rate,
				Key: dev, Absent: dev + " rbps=max wbps=max riops=max wiops=max",
			})
		}
	}
}

// hugetlb sets the limits of use and, "if supported" - runtime-spec, those of
// reservations.
func (l *list) hugetlb(limits []specs.LinuxHugepageLimit) {
	for _, h := range limits {
		size, _ := cgroups.PageSize(h.Pagesize) // checked by Validate
		w := cgroups.Write{
			Field: "hugepageLimits." + h.Pagesize, File: "hugetlb." + h.Pagesize + ".max",
			Value: strconv.FormatUint(h.Limit, 10), Check: cgroups.CheckPages, PageSize: size,
		}
		if h.Limit >= 1<<62 {
			w.Value, w.Check = "max", cgroups.CheckSame
		}
		l.add(w)
		w.File, w.Optional = "hugetlb."+h.Pagesize+".rsvd.max", true
		l.add(w)
	}
}

func unifiedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// unified writes the map as it is, one line at a time, in the order of the keys.
// A derived write to the same file is dropped, unless the file has a line per
// device.
func (l *list) unified(m map[string]string) error {
	for _, key := range unifiedKeys(m) {
		if err := checkUnifiedKey(key); err != nil {
			return err
		}
		l.writes = slices.DeleteFunc(l.writes, func(w cgroups.Write) bool { return w.File == key && w.Key == "" })
		for line := range strings.Lines(strings.TrimSpace(m[key])) {
			w := cgroups.Write{Field: "unified." + key, File: key, Value: strings.TrimSuffix(line, "\n")}
			w.Key, w.Absent = unifiedUndo(key, w.Value)
			l.add(w)
		}
		if strings.TrimSpace(m[key]) == "" {
			// Some files take an empty line, cpuset.cpus for one.
			l.add(cgroups.Write{Field: "unified." + key, File: key, Value: "\n"})
		}
	}
	return nil
}

// unifiedUndo tells which line of a file with many restores a write to it.
func unifiedUndo(file, value string) (key, absent string) {
	key, _, _ = strings.Cut(value, " ")
	switch file {
	case "io.max":
		return key, key + " rbps=max wbps=max riops=max wiops=max"
	case "io.weight", "io.bfq.weight":
		if !strings.Contains(key, ":") {
			return "default", "default 100"
		}
		return key, key + " default"
	case "io.latency":
		return key, key + " target=max"
	case "rdma.max":
		return key, key + " hca_handle=max hca_object=max"
	case "misc.max", "dmem.max", "dmem.min", "dmem.low":
		return key, ""
	}
	return "", ""
}

// checkUnifiedKey: "Each key in the map refers to a file in the cgroup unified
// hierarchy" - runtime-spec, config-linux.md. So a key is the name of a file of a
// controller, never a path, and not one of the files by which the group itself
// is run.
func checkUnifiedKey(key string) error {
	field := "unified[" + strconv.Quote(key) + "]"
	if _, err := pathsafe.ParseName(key); err != nil {
		return cgroups.Invalid(field, err.Error())
	}
	controller, file, ok := strings.Cut(key, ".")
	if !ok || controller == "" || file == "" {
		return cgroups.Invalid(field, "is no name of the form controller.file")
	}
	switch key {
	case "cgroup.procs", "cgroup.threads", "cgroup.type", "cgroup.kill", "cgroup.freeze", "cgroup.subtree_control":
		return cgroups.Invalid(field, "is the runtime's to write")
	}
	return nil
}
