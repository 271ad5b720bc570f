package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Inner is the cgroup of a scope, as package cgroup2 has it.
type Inner interface {
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

// Group is a cgroup in a scope: what changes its limits or ends it is told to
// systemd as well.
type Group struct {
	Inner
	Scope *Scope
}

// setTime bounds the call to systemd in Set.
const setTime = 10 * time.Second

// Set sets the limits in the files, all or none, and then in the unit. If the
// unit does not take them the files keep them, until systemd next writes its
// own; the error says so. systemd keeps a quota as whole percents and has written
// that, so the exact one is written once more.
func (g *Group) Set(res *specs.LinuxResources) error {
	if err := g.Inner.Set(res); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), setTime)
	defer cancel()
	if err := g.Scope.Set(ctx, res); err != nil {
		return fmt.Errorf("the limits are set, and not known to systemd: %w", err)
	}
	if res == nil || res.CPU == nil || cgroups.Value(res.CPU.Quota) == 0 {
		return nil
	}
	return g.Inner.Set(&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: res.CPU.Quota, Period: res.CPU.Period}})
}

// Delete stops the scope and removes the cgroup. Neither has to be there.
func (g *Group) Delete(ctx context.Context) error {
	return errors.Join(g.Scope.Stop(ctx), g.Inner.Delete(ctx))
}
