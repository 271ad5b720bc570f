package container

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// Planned is a start that was worked out and not made.
type Planned struct {
	Cgroup string   // where the process would be
	New    []string // namespaces that would be made for it: "pid", "net"
	Joined []string // namespaces that it would enter
	// Path is the program, looked up; "" where only the mounts, once made, tell.
	Path  string
	Hooks []string // "createRuntime[0] /usr/bin/hook", in the order they would run in
	Steps *plan.Plan
}

// PlanCreate works a container's creation out as Create does, with the same
// errors, and gives what its first process would do. What lies in this process
// alone is made, and let go: descriptors, detached mounts, a user namespace. No
// process of the container starts; there is no cgroup, no record, no file.
//
// ID, Bundle, Rootfs, Terminal and NoNewKeyring of o count.
func PlanCreate(ctx context.Context, o CreateOptions) (_ *Planned, err error) {
	if err := checkID(o.ID); err != nil {
		return nil, err
	}
	h, err := host()
	if err != nil {
		return nil, err
	}
	c := &Container{opts: o, initFD: -1, devpts: -1, procs: map[string]*Process{}}
	c.init = newProcess(c, "", nil)
	defer c.release()
	bundle, err := pathsafe.OpenState(o.Bundle)
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	defer bundle.Close()
	if c.spec, err = loadSpec(bundle); err != nil {
		return nil, err
	}
	if err := inheritMappings(ctx, h, c.spec); err != nil {
		return nil, err
	}
	if err := c.compileSeccomp(); err != nil {
		return nil, err
	}
	if c.init.spec, err = c.process(c.firstProcess()); err != nil {
		return nil, err
	}
	below, err := delegation(c.spec)
	if err != nil {
		return nil, err
	}
	path, err := cgroups.ParsePath(c.spec.Linux.CgroupsPath, o.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrInvalid)
	}
	c.group = &plannedGroup{layout: h.layout}
	return c.planFirst(ctx, h, path, below)
}

// planFirst is the part of assemble and build that starts nothing.
func (c *Container) planFirst(ctx context.Context, h *hostState, path cgroups.Path, below bool) (*Planned, error) {
	rfs, err := rootfs.Open(c.rootfsConfig())
	if err != nil {
		return nil, err
	}
	defer rfs.Close()
	if err := c.lookupEarly(rfs.Dir()); err != nil {
		return nil, err
	}
	s, done, err := c.firstStart(ctx, h, rfs)
	defer done()
	if err != nil {
		return nil, err
	}
	if below {
		s.Place.CgroupBelow = []int{c.group.IntoFD()}
	}
	out := &Planned{Cgroup: path.String(), New: names(c.spec, true), Joined: names(c.spec, false)}
	if rfs.Dir() != nil && c.spec.Process != nil && !mayBring(c.spec.Mounts, c.init.spec.Args[0]) {
		// It was found a moment ago.
		out.Path, _ = c.lookupIn(resolver{rfs.Dir(), private(c.spec, specs.UserNamespace)}, c.init.spec)
	}
	for _, name := range []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart"} {
		for i, hook := range hooksOf(c.spec.Hooks, name) {
			out.Hooks = append(out.Hooks, fmt.Sprintf("%s[%d] %s", name, i, hook.Path))
		}
	}
	out.Steps, err = exec.Describe(s)
	return out, err
}

// PlanExec works out one more process of the container as Start of an exec does,
// and starts nothing. The process gets no terminal.
func (c *Container) PlanExec(spec *specs.Process) (*Planned, error) {
	if s := c.init.Status(); s == Stopped {
		return nil, &StateError{"start a process in", s}
	}
	if err := validateProcess(spec); err != nil {
		return nil, err
	}
	h, err := host()
	if err != nil {
		return nil, err
	}
	ep, err := c.process(spec)
	if err != nil {
		return nil, err
	}
	if ep.Path, err = c.lookup(ep); err != nil {
		return nil, err
	}
	ep.Terminal = false
	setHome(ep, c.root)
	if err := c.usePipes(ep, Stdio{}); err != nil {
		return nil, err
	}
	path, err := cgroups.ParsePath(c.rec.CgroupsPath, c.rec.ID)
	if err != nil {
		return nil, err
	}
	out := &Planned{Cgroup: path.String(), Path: ep.Path, Joined: slices.Concat(names(c.spec, true), names(c.spec, false))}
	out.Steps, err = exec.Describe(c.execStart(h, ep))
	return out, err
}

// names lists the namespaces of the spec that are made, or those that are joined
// by path.
func names(s *specs.Spec, made bool) (out []string) {
	for _, n := range s.Linux.Namespaces {
		if (n.Path == "") == made {
			out = append(out, nsFlags[n.Type].file)
		}
	}
	return out
}

// plannedGroup stands for a cgroup that is not made: where a step needs its
// directory there is the root of the hierarchy. It can be asked where it is and
// nothing else.
type plannedGroup struct {
	group
	layout *cgroups.Layout
}

func (g *plannedGroup) Close() {}

func (g *plannedGroup) IntoFD() int {
	if g.layout.Unified == nil {
		return -1
	}
	return g.layout.Unified.FD()
}

func (g *plannedGroup) JoinFDs() (fds []int) {
	for _, h := range g.layout.V1 {
		fds = append(fds, h.Dir.FD())
	}
	return fds
}

func (g *plannedGroup) MountDirs() (dirs []cgroups.MountDir) {
	for i := range g.layout.V1 {
		h := &g.layout.V1[i]
		dirs = append(dirs, h.MountDir(h.Dir.FD()))
	}
	if g.layout.Mode == cgroups.V2 {
		dirs = append(dirs, cgroups.MountDir{FSType: "cgroup2", FD: g.layout.Unified.FD()})
	}
	return dirs
}

// String shows what stands before the steps: what is decided when they begin.
func (p *Planned) String() string {
	var b strings.Builder
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "# %-10s %s\n", what, text)
		}
	}
	line("cgroup", p.Cgroup)
	line("new", strings.Join(p.New, " "))
	line("joined", strings.Join(p.Joined, " "))
	line("program", p.Path)
	for _, h := range p.Hooks {
		line("hook", h)
	}
	return b.String()
}
