package container

import (
	"context"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	cgroup1 "github.com/ibex-run/ibex/cgroups/v1"
	cgroup2 "github.com/ibex-run/ibex/cgroups/v2"
	"github.com/ibex-run/ibex/container/rootfs"
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
	Kill(ctx context.Context) error
	OOMFD() (int, error)
	OOMKills() (uint64, error)
	Delete(ctx context.Context) error
	Close()
}

// createGroup makes the container's cgroup with its limits set.
func createGroup(l *cgroups.Layout, p cgroups.Path, res *specs.LinuxResources) (group, error) {
	if l.Mode == cgroups.V2 {
		return cgroup2.Create(l, p, res)
	}
	return cgroup1.Create(l, p, res)
}

// openGroup opens what an earlier process made, for cleaning up.
func openGroup(l *cgroups.Layout, p cgroups.Path) (group, error) {
	if l.Mode == cgroups.V2 {
		return cgroup2.Open(l, p)
	}
	return cgroup1.Open(l, p)
}

// cgroupDirs is what a mount of type cgroup shows.
func cgroupDirs(g group) (dirs []rootfs.CgroupDir) {
	for _, d := range g.MountDirs() {
		dirs = append(dirs, rootfs.CgroupDir{Name: d.Name, Links: d.Links, FD: d.FD})
	}
	return dirs
}
