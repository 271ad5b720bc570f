package cgroup2

import (
	"bytes"
	"errors"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

// Set changes what res names and nothing else. If one value is refused, those
// set before it are restored. An update with device rules replaces all of them
// (the default devices stay allowed); one without leaves them alone.
func (g *Group) Set(res *specs.LinuxResources) error {
	g.setMu.Lock()
	defer g.setMu.Unlock()
	if err := g.set(res, false, res != nil && len(res.Devices) > 0); err != nil {
		return fmt.Errorf("update cgroup %s: %w", g.path, err)
	}
	return nil
}

// set applies res. A fresh group is not restored after an error.
func (g *Group) set(res *specs.LinuxResources, fresh, devices bool) error {
	cur, err := g.current(res)
	if err != nil {
		return err
	}
	list, err := writes(res, cur)
	if err != nil {
		return err
	}
	if err := g.need(res); err != nil {
		return err
	}
	var rules []cgroups.DeviceRule
	if devices {
		var asked []specs.LinuxDeviceCgroup
		if res != nil {
			asked = res.Devices
		}
		if rules, err = cgroups.DeviceRules(asked); err != nil {
			return err
		}
	}
	if err := g.checkUsage(res); err != nil {
		return err
	}
	undo, err := cgroups.Apply(g, list, fresh)
	if err != nil {
		return err
	}
	// The devices come last: one program takes the place of the other at once, so
	// there is nothing of them to undo.
	if devices {
		if err := setDevices(g.dir, rules, fresh); err != nil {
			return errors.Join(err, undo())
		}
	}
	return nil
}

// current reads what the writes for res depend on.
func (g *Group) current(res *specs.LinuxResources) (cur current, err error) {
	cur.Quota, cur.Period = cgroups.NoLimit, 100000
	if res == nil {
		return cur, nil
	}
	if c := res.CPU; c != nil && (c.Quota != nil || c.Period != nil || c.Burst != nil) {
		text, ok, err := g.read("cpu.max")
		if err != nil {
			return cur, err
		}
		if ok {
			quota, rest := scan.Field(scan.Trim(text))
			period, _ := scan.Field(rest)
			var ok1, ok2 bool
			cur.Quota, ok1 = scan.UintOrMax(quota)
			cur.Period, ok2 = scan.Uint(period)
			if !ok1 || !ok2 {
				return cur, g.fileError("parse", "cpu.max", fmt.Errorf("unexpected %.100q", text))
			}
		}
		if cur.Burst, _, err = g.readUint("cpu.max.burst"); err != nil {
			return cur, err
		}
	}
	if c := res.CPU; c != nil && c.Idle != nil {
		idle, _, err := g.readUint("cpu.idle")
		if err != nil {
			return cur, err
		}
		cur.Idle = idle != 0
	}
	cur.Memory = cgroups.NoLimit
	if m := res.Memory; m != nil && m.Limit == nil && m.Swap != nil {
		limit, ok, err := g.readUint("memory.max")
		if err != nil {
			return cur, err
		}
		if ok {
			cur.Memory = limit
		}
	}
	if b := res.BlockIO; b != nil && (b.Weight != nil || len(b.WeightDevice) > 0) {
		if _, cur.BFQ, err = g.read("io.bfq.weight"); err != nil {
			return cur, err
		}
	}
	return cur, nil
}

// read reads a small file; ok is false if there is none.
func (g *Group) read(file string) (text []byte, ok bool, err error) {
	name, err := pathsafe.ParseName(file)
	if err != nil {
		return nil, false, err
	}
	text, err = readAll(g.dir, name)
	if errors.Is(err, unix.ENOENT) && !errors.Is(err, pathsafe.ErrGone) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, g.fileError("read", file, err)
	}
	return text, true, nil
}

// readUint reads a file of one number, or "max".
func (g *Group) readUint(file string) (v uint64, ok bool, err error) {
	text, ok, err := g.read(file)
	if !ok || err != nil {
		return 0, false, err
	}
	if v, ok = scan.UintOrMax(bytes.TrimSpace(text)); !ok {
		return 0, false, g.fileError("parse", file, fmt.Errorf("unexpected %.100q", text))
	}
	return v, true, nil
}

// checkUsage refuses a memory limit below what is in use, if the request wants
// that looked at: the kernel takes such a limit, and kills. The use can grow
// between the look and the write.
func (g *Group) checkUsage(res *specs.LinuxResources) error {
	if res == nil || res.Memory == nil || !cgroups.Value(res.Memory.CheckBeforeUpdate) {
		return nil
	}
	limit := cgroups.Value(res.Memory.Limit)
	if limit <= 0 {
		return nil
	}
	usage, ok, err := g.readUint("memory.current")
	if err != nil || !ok || usage <= uint64(limit) {
		return err
	}
	return &cgroups.ResourceError{
		Field: "memory.limit", Err: unix.EBUSY,
		Text: fmt.Sprintf("limit %d is below the current usage %d", limit, usage),
	}
}
