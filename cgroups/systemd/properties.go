package systemd

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
)

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// startProperties are those of a new scope.
func startProperties(u cgroups.Unit, o Options) ([]dbus.Property, error) {
	if o.PID <= 0 {
		return nil, fmt.Errorf("a scope needs a process: %w", cgroups.ErrInvalid)
	}
	props := []dbus.Property{
		property("Description", "container "+strings.TrimSuffix(u.Name, ".scope")),
		property("Slice", u.Slice),
		property("PIDs", []uint32{uint32(o.PID)}),
		// What is below the scope's directory is ours, and so is its own
		// subtree_control.
		property("Delegate", true),
		// Without it the scope would stop in an order of systemd's at shutdown.
		property("DefaultDependencies", false),
		// A scope whose process was OOM-killed has failed, and would stay.
		property("CollectMode", "inactive-or-failed"),
		// Accounting makes systemd enable the controllers down to the scope.
		property("CPUAccounting", true),
		property("MemoryAccounting", true),
		property("IOAccounting", true),
		property("TasksAccounting", true),
	}
	limits, err := properties(o.Resources)
	if err != nil {
		return nil, err
	}
	// With a default of systemd's own a container without a limit would have one:
	// DefaultTasksMax is 15 % of what the kernel can hold.
	if !slices.ContainsFunc(limits, func(p dbus.Property) bool { return p.Name == "TasksMax" }) {
		limits = append(limits, property("TasksMax", uint64(math.MaxUint64)))
	}
	more, err := annotated(o.Annotations)
	if err != nil {
		return nil, err
	}
	return append(append(props, limits...), more...), nil
}

// properties are those that follow from res. Every one is what package cgroup2
// writes to a file, in systemd's units - systemd.resource-control(5). What
// systemd has no property for is in the files alone.
func properties(res *specs.LinuxResources) ([]dbus.Property, error) {
	if res == nil {
		return nil, nil
	}
	var props []dbus.Property
	add := func(name string, value any) { props = append(props, property(name, value)) }
	if m := res.Memory; m != nil {
		if n := cgroups.Value(m.Limit); n != 0 {
			add("MemoryMax", limit(n))
		}
		if n := cgroups.Value(m.Reservation); n != 0 {
			add("MemoryLow", limit(n))
		}
		if cgroups.Value(m.Limit) != 0 {
			n, set, err := cgroups.SwapMax(cgroups.Value(m.Limit), cgroups.Value(m.Swap))
			if err != nil {
				return nil, err
			}
			if set {
				add("MemorySwapMax", limit(n))
			}
		}
	}
	if res.Pids != nil && res.Pids.Limit != nil {
		n := *res.Pids.Limit
		if n == 0 {
			n = 1
		}
		add("TasksMax", limit(n))
	}
	if b := res.BlockIO; b != nil {
		if w := cgroups.IOWeight(cgroups.Value(b.Weight)); w != 0 {
			add("IOWeight", w)
		}
	}
	if c := res.CPU; c != nil {
		more, err := cpuProperties(c)
		if err != nil {
			return nil, err
		}
		props = append(props, more...)
	}
	return append(props, unifiedProperties(res.Unified)...), nil
}

// limit turns -1 into systemd's infinity.
func limit(n int64) uint64 {
	if n < 0 {
		return math.MaxUint64
	}
	return uint64(n)
}

func cpuProperties(c *specs.LinuxCPU) ([]dbus.Property, error) {
	var props []dbus.Property
	if w := cgroups.Weight(cgroups.Value(c.Shares)); w != 0 {
		props = append(props, property("CPUWeight", w))
	}
	if q := cgroups.Value(c.Quota); q != 0 {
		period := cgroups.Value(c.Period)
		if period == 0 {
			period = 100000 // the kernel's default, default_cfs_period in kernel/sched/fair.c
		}
		props = append(props, property("CPUQuotaPeriodUSec", period), property("CPUQuotaPerSecUSec", perSecond(q, period)))
	}
	for _, f := range []struct{ field, name, list string }{
		{"cpu.cpus", "AllowedCPUs", c.Cpus}, {"cpu.mems", "AllowedMemoryNodes", c.Mems},
	} {
		if f.list == "" {
			continue
		}
		l, ok := cgroups.ParseList(f.list)
		if !ok {
			return nil, cgroups.Invalid(f.field, strconv.Quote(f.list)+" is no list like 0-3,8")
		}
		props = append(props, property(f.name, l.Bytes()))
	}
	return props, nil
}

// perSecond is the CPU time for each second. systemd keeps it as whole percents,
// 10 ms in a second: it is rounded up, so that the exact quota, which is below
// it, can be set in groups inside the scope.
func perSecond(quota int64, period uint64) uint64 {
	if quota < 0 {
		return math.MaxUint64
	}
	const second, percent = 1000000, 10000
	if uint64(quota) > math.MaxUint64/second {
		return math.MaxUint64
	}
	n := uint64(quota) * second / period
	if rest := n % percent; rest != 0 {
		n += percent - rest
	}
	return max(n, percent)
}

// unifiedProperties are those of keys of unified that systemd would otherwise
// set to something else.
func unifiedProperties(m map[string]string) []dbus.Property {
	var props []dbus.Property
	for _, f := range []struct{ key, name string }{
		{"cpu.weight", "CPUWeight"},
		{"memory.high", "MemoryHigh"},
		{"memory.low", "MemoryLow"},
		{"memory.max", "MemoryMax"},
		{"memory.min", "MemoryMin"},
		{"memory.swap.max", "MemorySwapMax"},
		{"pids.max", "TasksMax"},
	} {
		text, ok := m[f.key]
		if !ok {
			continue
		}
		text = strings.TrimSpace(text)
		n, err := strconv.ParseUint(text, 10, 64)
		if text == "max" {
			n, err = math.MaxUint64, nil
		}
		if err == nil { // anything else the kernel judges, in the file
			props = append(props, property(f.name, n))
		}
	}
	return props
}

const annotation = "org.systemd.property."

// mayAnnotate are the properties that an annotation may set: those that say how
// the unit ends, and nothing about what its processes may do or use. The value is
// of the type that systemd's interface has, see org.freedesktop.systemd1(5).
var mayAnnotate = map[string]string{
	"CollectMode":     "s",
	"TimeoutStopUSec": "t",
	"KillMode":        "s",
	"KillSignal":      "i",
	"SendSIGKILL":     "b",
	"SendSIGHUP":      "b",
	"FinalKillSignal": "i",
	"RuntimeMaxUSec":  "t",
	"OOMPolicy":       "s",
}

// annotated reads annotations such as
//
//	org.systemd.property.TimeoutStopUSec: "uint64 5000000"
//	org.systemd.property.CollectMode: "'inactive-or-failed'"
//
// whose values are in the text form of GVariant. A property that is not in
// mayAnnotate is refused by name.
func annotated(m map[string]string) ([]dbus.Property, error) {
	var props []dbus.Property
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name, ok := strings.CutPrefix(key, annotation)
		if !ok {
			continue
		}
		typ, ok := mayAnnotate[name]
		if !ok {
			return nil, fmt.Errorf("annotation %s: the property may not be set by a container: %w", key, cgroups.ErrInvalid)
		}
		v, err := godbus.ParseVariant(m[key], godbus.ParseSignatureMust(typ))
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w: %w", key, err, cgroups.ErrInvalid)
		}
		props = append(props, dbus.Property{Name: name, Value: v})
	}
	return props, nil
}
