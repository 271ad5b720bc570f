package cgroup1

import (
	"errors"
	"fmt"
	"path"
	"strings"

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
	var to cgroups.DeviceSet
	if devices {
		if to, err = deviceSet(res); err != nil {
			return err
		}
	}
	if err := g.checkUsage(res); err != nil {
		return err
	}
	undo, err := cgroups.Apply(g, list, fresh)
	if err != nil {
		return g.explain(res, err)
	}
	// The devices come last: restoring them is the one step that could take a
	// device away from a running process for a moment.
	if devices {
		if err := g.setDevices(to, fresh); err != nil {
			return errors.Join(err, undo())
		}
	}
	return nil
}

func deviceSet(res *specs.LinuxResources) (cgroups.DeviceSet, error) {
	var list []specs.LinuxDeviceCgroup
	if res != nil {
		list = res.Devices
	}
	rules, err := cgroups.DeviceRules(list)
	if err != nil {
		return cgroups.DeviceSet{}, err
	}
	return cgroups.MakeDeviceSet(rules)
}

// setDevices leads from the rules in force to the set to.
func (g *Group) setDevices(to cgroups.DeviceSet, fresh bool) error {
	from, err := g.devices()
	if err != nil {
		return err
	}
	if _, err := cgroups.Apply(g, deviceWrites(from, to), fresh); err != nil {
		if fresh {
			return err
		}
		now, e := g.devices()
		if e == nil {
			_, e = cgroups.Apply(g, deviceWrites(now, from), false)
		}
		return errors.Join(err, e)
	}
	return nil
}

// devices reads devices.list.
func (g *Group) devices() (cgroups.DeviceSet, error) {
	m := g.member("devices")
	if m == nil {
		return cgroups.DeviceSet{}, cgroups.Missing("devices", "cgroup controller devices")
	}
	text, err := readAll(m.dir, pathsafe.MustName("devices.list"))
	if err != nil {
		return cgroups.DeviceSet{}, g.fileError("read", "devices.list", err)
	}
	s, err := parseDevicesList(text)
	if err != nil {
		return s, g.fileError("parse", "devices.list", err)
	}
	return s, nil
}

// readAll reads a file of any size up to 1 MiB.
func readAll(dir *pathsafe.Dir, name pathsafe.Name) ([]byte, error) {
	for size := 4096; ; size *= 4 {
		buf := make([]byte, size)
		n, err := dir.Read(name, buf)
		if errors.Is(err, pathsafe.ErrTooBig) && size < 1<<20 {
			continue
		}
		return buf[:n], err
	}
}

func (g *Group) fileError(op, file string, err error) error {
	if errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENODEV) {
		err = errors.Join(cgroups.ErrGone, err)
	}
	return &cgroups.FileError{Op: op, Group: g.path.String(), File: file, Err: err}
}

// readUint reads a file of one number. ok is false if there is no such file or
// controller.
func (g *Group) readUint(controller, file string) (v uint64, ok bool, err error) {
	i, ok, err := g.readInt(controller, file)
	return uint64(i), ok, err
}

func (g *Group) readInt(controller, file string) (v int64, ok bool, err error) {
	m := g.member(controller)
	if m == nil {
		return 0, false, nil
	}
	var buf [64]byte
	n, err := m.dir.Read(pathsafe.MustName(file), buf[:])
	if errors.Is(err, unix.ENOENT) && !errors.Is(err, pathsafe.ErrGone) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, g.fileError("read", file, err)
	}
	if v, ok = scan.Int(scan.Trim(buf[:n])); !ok {
		return 0, false, g.fileError("parse", file, fmt.Errorf("unexpected %q", buf[:n]))
	}
	return v, true, nil
}

// current reads what the order of the writes for res depends on.
func (g *Group) current(res *specs.LinuxResources) (cur current, err error) {
	if res == nil {
		return cur, nil
	}
	var errs []error
	read := func(controller, file string) (uint64, bool) {
		v, ok, err := g.readUint(controller, file)
		errs = append(errs, err)
		return v, ok
	}
	if c := res.CPU; c != nil {
		if c.Period != nil {
			cur.Period, _ = read("cpu", "cpu.cfs_period_us")
		}
		if c.Idle != nil {
			idle, _ := read("cpu", "cpu.idle")
			cur.Idle = idle != 0
		}
		if c.Burst != nil {
			cur.Burst, _ = read("cpu", "cpu.cfs_burst_us")
		}
		if c.RealtimePeriod != nil {
			cur.RealtimePeriod, _ = read("cpu", "cpu.rt_period_us")
		}
	}
	if m := res.Memory; m != nil && (m.Limit != nil || m.Swap != nil) {
		cur.Memory, _ = read("memory", "memory.limit_in_bytes")
		cur.Memsw, cur.HasMemsw = read("memory", "memory.memsw.limit_in_bytes")
	}
	if b := res.BlockIO; b != nil && (b.Weight != nil || len(b.WeightDevice) > 0) {
		for _, file := range []string{"blkio.weight", "blkio.bfq.weight"} {
			if m := g.member("blkio"); m != nil && exists(m.dir, file) {
				cur.WeightFile = file
				break
			}
		}
	}
	return cur, errors.Join(errs...)
}

// exists: a file that cannot be opened counts as there; the write will tell.
func exists(dir *pathsafe.Dir, file string) bool {
	var buf [256]byte
	_, err := dir.Read(pathsafe.MustName(file), buf[:])
	return !errors.Is(err, unix.ENOENT)
}

// checkUsage refuses a memory limit below what is in use, if the request wants
// that looked at. The use can grow between the look and the write; the kernel
// then has the last word.
func (g *Group) checkUsage(res *specs.LinuxResources) error {
	if res == nil || res.Memory == nil || !cgroups.Value(res.Memory.CheckBeforeUpdate) {
		return nil
	}
	limit := cgroups.Value(res.Memory.Limit)
	if limit <= 0 {
		return nil
	}
	usage, ok, err := g.readUint("memory", "memory.usage_in_bytes")
	if err != nil || !ok || usage <= uint64(limit) {
		return err
	}
	return tooLow(limit, usage, unix.EBUSY)
}

func tooLow(limit int64, usage uint64, errno error) error {
	return &cgroups.ResourceError{
		Field: "memory.limit", Err: errno,
		Text: fmt.Sprintf("limit %d is below the current usage %d", limit, usage),
	}
}

// explain turns the EBUSY of a memory limit below the usage into words.
func (g *Group) explain(res *specs.LinuxResources, err error) error {
	var f *cgroups.FileError
	if !errors.Is(err, unix.EBUSY) || !errors.As(err, &f) || !strings.HasSuffix(f.File, "limit_in_bytes") {
		return err
	}
	usage, ok, e := g.readUint("memory", strings.Replace(f.File, "limit", "usage", 1))
	if e != nil || !ok || !strings.HasPrefix(f.File, "memory.") {
		return err
	}
	return errors.Join(tooLow(cgroups.Value(res.Memory.Limit), usage, unix.EBUSY), err)
}

var (
	cpusetCpus = pathsafe.MustName("cpuset.cpus")
	cpusetMems = pathsafe.MustName("cpuset.mems")
)

// fillCpuset copies cpus and mems down the path where they are empty: a new
// cpuset of version 1 has none, and takes no process until it has some
// (cpuset(7), "A cpuset's cpus and mems must be non-empty"). What somebody has
// set stays. leaf is the group's own directory.
func fillCpuset(root, leaf *pathsafe.Dir, p cgroups.Path) error {
	for _, name := range []pathsafe.Name{cpusetCpus, cpusetMems} {
		// cgroup.clone_children, or a run before, may have filled it.
		own, err := readAll(leaf, name)
		if err != nil {
			return err
		}
		if len(scan.Trim(own)) > 0 {
			continue
		}
		value, err := fillParents(root, name, path.Dir(p.Rel().String()))
		if err != nil {
			return err
		}
		if err := leaf.Write(name, value); err != nil {
			return err
		}
	}
	return nil
}

// fillParents fills the groups above, from the root down, and gives what the
// last of them has. above is "." if there are none.
func fillParents(root *pathsafe.Dir, name pathsafe.Name, above string) ([]byte, error) {
	value, err := readAll(root, name)
	if err != nil || above == "." {
		return value, err
	}
	for at := 0; at < len(above); at++ {
		if i := strings.IndexByte(above[at:], '/'); i >= 0 {
			at += i
		} else {
			at = len(above)
		}
		rel, err := pathsafe.ParseRel(above[:at])
		if err != nil {
			return nil, err
		}
		dir, err := root.Sub(rel)
		if err != nil {
			return nil, err
		}
		own, err := readAll(dir, name)
		if err == nil && len(scan.Trim(own)) == 0 {
			own, err = value, dir.Write(name, value)
		}
		_ = dir.Close()
		if err != nil {
			return nil, err
		}
		value = own
	}
	return value, nil
}
