package container

import (
	"context"
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/cgroups/systemd"
	cgroup1 "github.com/ibex-run/ibex/cgroups/v1"
	cgroup2 "github.com/ibex-run/ibex/cgroups/v2"
	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// group is a container's cgroup, of either version.
type group interface {
	Set(res *specs.LinuxResources) error
	JoinFDs() []int
	Add(pid int) error
	IntoFD() int
	MountDirs() []cgroups.MountDir
	Stat(s *cgroups.Stats) error
	Procs() ([]int, error)
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Frozen() (bool, error)
	Kill(ctx context.Context) error
	OOMFD() (int, error)
	OOMKills() (uint64, error)
	OOMCause() (string, error)
	Leaf(name pathsafe.Name) (*cgroups.Leaf, error)
	Delete(ctx context.Context) error
	Close()
}

// createGroup makes the container's cgroup with its limits set. A path of
// systemd's form is a scope: it needs a process from the start, which is the
// holder, to be ended once the container's own is in.
func createGroup(ctx context.Context, l *cgroups.Layout, p cgroups.Path, s *specs.Spec) (g group, holder *exec.Child, err error) {
	res := s.Linux.Resources
	if _, ok := p.Unit(); ok && l.Mode == cgroups.V2 {
		if holder, err = exec.NewHelper(ctx, nil, func(*plan.Builder) {}); err != nil {
			return nil, nil, err
		}
		if g, err = createScope(ctx, l, p, s, holder.PID); err != nil {
			holder.Abort()
			return nil, nil, err
		}
		return g, holder, nil
	}
	if g, err = createPlain(l, p, res); err != nil {
		return nil, nil, err // not a typed nil
	}
	return g, nil, nil
}

func createScope(ctx context.Context, l *cgroups.Layout, p cgroups.Path, s *specs.Spec, pid int) (group, error) {
	scope, err := systemd.Start(ctx, p, systemd.Options{PID: pid, Resources: s.Linux.Resources, Annotations: s.Annotations})
	if err != nil {
		return nil, err
	}
	inner, err := cgroup2.Adopt(l, p, s.Linux.Resources)
	if err != nil {
		return nil, errors.Join(err, scope.Stop(ctx))
	}
	return &systemd.Group{Inner: inner, Scope: scope}, nil
}

func createPlain(l *cgroups.Layout, p cgroups.Path, res *specs.LinuxResources) (group, error) {
	if l.Mode == cgroups.V2 {
		return cgroup2.Create(l, p, res)
	}
	return cgroup1.Create(l, p, res)
}

// openGroup opens what an earlier process made, for cleaning up.
func openGroup(l *cgroups.Layout, p cgroups.Path) (group, error) {
	if _, ok := p.Unit(); ok && l.Mode == cgroups.V2 {
		return openScope(l, p)
	}
	if l.Mode == cgroups.V2 {
		return cgroup2.Open(l, p)
	}
	return cgroup1.Open(l, p)
}

func openScope(l *cgroups.Layout, p cgroups.Path) (group, error) {
	scope, err := systemd.Open(p)
	if err != nil {
		return nil, err
	}
	inner, err := cgroup2.Open(l, p)
	if errors.Is(err, cgroups.ErrNotFound) {
		// The unit may be left over, failed and without a cgroup.
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		return nil, errors.Join(err, scope.Stop(ctx))
	}
	if err != nil {
		return nil, err
	}
	return &systemd.Group{Inner: inner, Scope: scope}, nil
}

// cgroupDirs is what a mount of type cgroup shows.
func cgroupDirs(g group) (dirs []rootfs.CgroupDir) {
	for _, d := range g.MountDirs() {
		dirs = append(dirs, rootfs.CgroupDir{Name: d.Name, Links: d.Links, FD: d.FD})
	}
	return dirs
}
