package cgroups

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Validate refuses what no kernel of either version would take, before anything
// is written. It names the field.
func Validate(res *specs.LinuxResources) error {
	if res == nil {
		return nil
	}
	for _, check := range []func(*specs.LinuxResources) error{
		validateMemory, validateCPU, validateIO, validateOthers,
	} {
		if err := check(res); err != nil {
			return err
		}
	}
	return nil
}

func validateMemory(res *specs.LinuxResources) error {
	m := res.Memory
	if m == nil {
		return nil
	}
	for _, f := range []struct {
		name  string
		value *int64
	}{{"limit", m.Limit}, {"reservation", m.Reservation}, {"swap", m.Swap}, {"kernelTCP", m.KernelTCP}} {
		if Value(f.value) < -1 {
			return Invalid("memory."+f.name, "is below -1")
		}
	}
	limit, swap := Value(m.Limit), Value(m.Swap)
	if swap > 0 && limit > 0 && swap < limit {
		return Invalid("memory.swap", "is memory and swap together and cannot be below memory.limit")
	}
	if m.Swappiness != nil && *m.Swappiness > 100 && *m.Swappiness != 1<<64-1 {
		return Invalid("memory.swappiness", fmt.Sprintf("%d is not in 0 to 100", *m.Swappiness))
	}
	return nil
}

func validateCPU(res *specs.LinuxResources) error {
	c := res.CPU
	if c == nil {
		return nil
	}
	for _, f := range []struct{ name, list string }{{"cpus", c.Cpus}, {"mems", c.Mems}} {
		if _, ok := ParseList(f.list); !ok {
			return Invalid("cpu."+f.name, strconv.Quote(f.list)+" is no list like 0-3,8")
		}
	}
	if c.Idle != nil && *c.Idle != 0 && *c.Idle != 1 {
		return Invalid("cpu.idle", fmt.Sprintf("%d is neither 0 nor 1", *c.Idle))
	}
	return nil
}

func validateIO(res *specs.LinuxResources) error {
	b := res.BlockIO
	if b == nil {
		return nil
	}
	weight := func(field string, w *uint16) error {
		if w != nil && *w != 0 && (*w < 10 || *w > 1000) {
			return Invalid(field, fmt.Sprintf("%d is not in 10 to 1000", *w))
		}
		return nil
	}
	if err := weight("blockIO.weight", b.Weight); err != nil {
		return err
	}
	for i, d := range b.WeightDevice {
		field := fmt.Sprintf("blockIO.weightDevice[%d]", i)
		if err := weight(field, d.Weight); err != nil {
			return err
		}
		if d.Major < 0 || d.Minor < 0 {
			return Invalid(field, "has a device number below 0")
		}
	}
	for _, t := range Throttles(b) {
		for i, d := range t.Devices {
			if d.Major < 0 || d.Minor < 0 {
				return Invalid(fmt.Sprintf("%s[%d]", t.Field, i), "has a device number below 0")
			}
		}
	}
	return nil
}

func validateOthers(res *specs.LinuxResources) error {
	for i, h := range res.HugepageLimits {
		if _, ok := PageSize(h.Pagesize); !ok {
			return Invalid(fmt.Sprintf("hugepageLimits[%d].pageSize", i), strconv.Quote(h.Pagesize)+" is no size like 2MB")
		}
	}
	for name := range res.Rdma {
		if strings.ContainsAny(name, " \t\n/=") || name == "" {
			return Invalid("rdma", strconv.Quote(name)+" is no device")
		}
	}
	if res.Network != nil {
		for _, p := range res.Network.Priorities {
			// IFNAMSIZ, include/uapi/linux/if.h.
			if p.Name == "" || len(p.Name) > 15 || strings.ContainsAny(p.Name, " \t\n/:") {
				return Invalid("network.priorities", strconv.Quote(p.Name)+" is no interface")
			}
		}
	}
	return nil
}

// Value gives what p points to, and zero if it points nowhere. Zero means "not
// set" for every number of linux.resources except pids.limit and cpu.burst.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Throttle is one of the four lists of throttled devices.
type Throttle struct {
	Field   string // below linux.resources
	V1File  string
	V2Key   string // of io.max
	Devices []specs.LinuxThrottleDevice
}

// Throttles gives the lists in the order in which they are written.
func Throttles(b *specs.LinuxBlockIO) []Throttle {
	return []Throttle{
		{"blockIO.throttleReadBpsDevice", "blkio.throttle.read_bps_device", "rbps", b.ThrottleReadBpsDevice},
		{"blockIO.throttleWriteBpsDevice", "blkio.throttle.write_bps_device", "wbps", b.ThrottleWriteBpsDevice},
		{"blockIO.throttleReadIOPSDevice", "blkio.throttle.read_iops_device", "riops", b.ThrottleReadIOPSDevice},
		{"blockIO.throttleWriteIOPSDevice", "blkio.throttle.write_iops_device", "wiops", b.ThrottleWriteIOPSDevice},
	}
}

// PageSize reads the name of a size of huge pages, such as "2MB" or "64KB", and
// gives it in bytes.
//
// The kernel's names are made by mem_fmt, mm/hugetlb_cgroup.c. A name becomes a
// part of a file name, so nothing but digits and a unit gets through.
func PageSize(name string) (bytes uint64, ok bool) {
	digits, unit := name, ""
	if len(name) > 2 {
		digits, unit = name[:len(name)-2], name[len(name)-2:]
	}
	shift := map[string]uint{"KB": 10, "MB": 20, "GB": 30}[unit]
	n, err := strconv.ParseUint(digits, 10, 32)
	if shift == 0 || err != nil || n == 0 || digits[0] == '0' || digits[0] == '+' {
		return 0, false
	}
	return n << shift, true
}

// PageSizeName is the inverse of PageSize, in the kernel's words.
func PageSizeName(bytes uint64) string {
	switch {
	case bytes >= 1<<30:
		return strconv.FormatUint(bytes>>30, 10) + "GB"
	case bytes >= 1<<20:
		return strconv.FormatUint(bytes>>20, 10) + "MB"
	}
	return strconv.FormatUint(bytes>>10, 10) + "KB"
}

// RdmaWrites gives the writes of rdma.max, which both versions share.
func RdmaWrites(res *specs.LinuxResources, controller string) []Write {
	names := make([]string, 0, len(res.Rdma))
	for name := range res.Rdma {
		names = append(names, name)
	}
	slices.Sort(names)
	var writes []Write
	for _, name := range names {
		r, value := res.Rdma[name], name
		if r.HcaHandles != nil {
			value += fmt.Sprintf(" hca_handle=%d", *r.HcaHandles)
		}
		if r.HcaObjects != nil {
			value += fmt.Sprintf(" hca_object=%d", *r.HcaObjects)
		}
		if value != name {
			writes = append(writes, Write{
				Field: "rdma." + name, Controller: controller, File: "rdma.max", Value: value,
				Key: name, Absent: name + " hca_handle=max hca_object=max",
			})
		}
	}
	return writes
}
