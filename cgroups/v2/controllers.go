package cgroup2

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

var (
	controllersFile = pathsafe.MustName("cgroup.controllers")
	subtreeControl  = pathsafe.MustName("cgroup.subtree_control")
	typeFile        = pathsafe.MustName("cgroup.type")
)

// controllers reads cgroup.controllers.
func controllers(dir *pathsafe.Dir) ([]string, error) {
	text, err := readAll(dir, controllersFile)
	return strings.Fields(string(text)), err
}

// enableControllers enables in every group above ours what it has, from the root
// down. A group above that has processes of its own cannot hand controllers of
// domains down ("no internal process constraint", cgroups(7)); that only matters
// if a limit asks for one of them, see need.
func (g *Group) enableControllers() error {
	dir := g.root
	parts := strings.Split(g.path.Rel().String(), "/")
	for _, part := range parts {
		if err := enable(dir); err != nil && g.enableErr == nil {
			g.enableErr = err
		}
		rel, err := pathsafe.ParseRel(part)
		if err != nil {
			return err
		}
		sub, err := dir.Sub(rel)
		if dir != g.root {
			_ = dir.Close()
		}
		if err != nil {
			return err
		}
		dir = sub
	}
	defer dir.Close()
	if err := checkType(dir); err != nil {
		return err
	}
	var err error
	g.controllers, err = controllers(dir)
	return err
}

// enable hands every controller of dir down to its children: all in one write,
// and where that is refused one by one, so that one that cannot be had does not
// cost the others. What is on already is not written again.
//
// EBUSY means that dir has processes. Then nothing more is tried: the kernel
// would take the controllers that work for threads, and make dir a threaded
// domain by that, whose children take no processes (cgroup_enable_threaded and
// cgroup_vet_subtree_control_enable, kernel/cgroup/cgroup.c).
func enable(dir *pathsafe.Dir) error {
	have, err := controllers(dir)
	if err != nil {
		return err
	}
	text, err := readAll(dir, subtreeControl)
	if err != nil {
		return err
	}
	on := strings.Fields(string(text))
	want := slices.DeleteFunc(have, func(c string) bool { return slices.Contains(on, c) })
	if len(want) == 0 {
		return nil
	}
	all := strings.Join(want, " +")
	err = dir.Write(subtreeControl, []byte("+"+all))
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("enable controllers +%s: the cgroup above has processes: %w", all, err)
	}
	var first error
	for _, c := range want {
		if err := dir.Write(subtreeControl, []byte("+"+c)); err != nil && first == nil {
			first = fmt.Errorf("enable controller %s: %w", c, err)
		}
	}
	return first
}

// checkType refuses a group that takes no processes, because a group above it is
// threaded - cgroup-v2.rst, "Threads".
func checkType(dir *pathsafe.Dir) error {
	text, err := readAll(dir, typeFile)
	if errors.Is(err, unix.ENOENT) {
		return nil // the root has no type
	}
	if err != nil {
		return err
	}
	switch t := strings.TrimSpace(string(text)); t {
	case "domain", "domain threaded":
		return nil
	default:
		return fmt.Errorf("cgroup is of type %q, which takes no processes: %w", t, unix.EOPNOTSUPP)
	}
}

// need checks that the group has the controllers that res asks for.
func (g *Group) need(res *specs.LinuxResources) error {
	for _, n := range needs(res) {
		if slices.Contains(g.controllers, n.controller) {
			continue
		}
		err := cgroups.Missing(n.field, "cgroup controller "+n.controller+" for this group")
		if g.enableErr != nil {
			err = errors.Join(err, g.enableErr)
		}
		return err
	}
	return nil
}

type need struct{ field, controller string }

// needs lists which controller each field of res needs.
func needs(res *specs.LinuxResources) []need {
	if res == nil {
		return nil
	}
	var out []need
	add := func(field, controller string, asked bool) {
		if asked {
			out = append(out, need{field, controller})
		}
	}
	if c := res.CPU; c != nil {
		add("cpu.cpus", "cpuset", c.Cpus != "" || c.Mems != "")
		add("cpu", "cpu", cgroups.Value(c.Shares) != 0 || cgroups.Value(c.Quota) != 0 ||
			cgroups.Value(c.Period) != 0 || c.Burst != nil || c.Idle != nil)
	}
	if m := res.Memory; m != nil {
		add("memory", "memory", cgroups.Value(m.Limit) != 0 || cgroups.Value(m.Swap) != 0 || cgroups.Value(m.Reservation) != 0)
	}
	add("pids.limit", "pids", res.Pids != nil && res.Pids.Limit != nil)
	if b := res.BlockIO; b != nil {
		asked := cgroups.Value(b.Weight) != 0 || len(b.WeightDevice) > 0
		for _, t := range cgroups.Throttles(b) {
			asked = asked || len(t.Devices) > 0
		}
		add("blockIO", "io", asked)
	}
	add("hugepageLimits", "hugetlb", len(res.HugepageLimits) > 0)
	add("rdma", "rdma", len(res.Rdma) > 0)
	for _, key := range unifiedKeys(res.Unified) {
		if c, _, _ := strings.Cut(key, "."); c != "cgroup" {
			add("unified."+key, c, true)
		}
	}
	return out
}
