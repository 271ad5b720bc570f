package cgroup1

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Group is a cgroup in the hierarchies of version 1. It holds one descriptor for
// its directory in each, and after the first Stat one for each file read there.
// Its methods may be called from several goroutines.
type Group struct {
	path    cgroups.Path
	members []member // guarded by nothing: fixed after Create and Open
	unified *member  // nil if the host has no unified hierarchy

	setMu sync.Mutex // one Set at a time: each restores what it found

	statMu sync.Mutex // before nothing
	stat   statFiles  // guarded by statMu

	oomMu sync.Mutex
	oom   oomFiles // guarded by oomMu
}

// member is the group's directory in one hierarchy.
type member struct {
	cgroups.Hierarchy // of the root
	dir               *pathsafe.Dir
	madeFrom          int // index of the first component made by Create, -1 if none
}

// has reports whether the hierarchy belongs to a controller.
func (m *member) has(controller string) bool { return slices.Contains(m.Controllers, controller) }

// Create makes the cgroup in every hierarchy and applies res to it. The device
// rules are applied also if res has none or is nil: everything but the default
// devices is denied. An existing cgroup is taken if it is empty and not frozen;
// otherwise the error is cgroups.ErrBusy. After an error nothing is left of what
// Create made.
func Create(l *cgroups.Layout, p cgroups.Path, res *specs.LinuxResources) (_ *Group, err error) {
	if u, ok := p.Unit(); ok {
		return nil, fmt.Errorf("create cgroup %s: unit %s: %w", p, u.Name, cgroups.ErrSystemd)
	}
	g := &Group{path: p}
	defer func() {
		if err != nil {
			g.unmake()
			g.Close()
			err = fmt.Errorf("create cgroup %s: %w", p, err)
		}
	}()
	fresh := true
	for _, h := range hierarchies(l) {
		m := member{Hierarchy: h}
		if err := m.make(p); err != nil {
			g.adopt(m, l)
			return nil, err
		}
		g.adopt(m, l)
		if !m.madeLeaf() {
			fresh = false
			if err := m.refuseBusy(); err != nil {
				return nil, err
			}
		}
		if m.has("cpuset") {
			if err := fillCpuset(m.Dir, m.dir, p); err != nil {
				return nil, err
			}
		}
	}
	if err := g.set(res, fresh, true); err != nil {
		return nil, err
	}
	return g, nil
}

// Open finds the parts of an existing cgroup. Hierarchies that do not have it
// are left out; if none has it the error is cgroups.ErrNotFound.
func Open(l *cgroups.Layout, p cgroups.Path) (*Group, error) {
	g := &Group{path: p}
	for _, h := range hierarchies(l) {
		dir, err := h.Dir.Sub(p.Rel())
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("open cgroup %s: %w", p, err)
		}
		g.adopt(member{Hierarchy: h, dir: dir, madeFrom: -1}, l)
	}
	if len(g.members) == 0 && g.unified == nil {
		return nil, fmt.Errorf("open cgroup %s: %w", p, cgroups.ErrNotFound)
	}
	return g, nil
}

// hierarchies lists those of version 1, and the unified one last. It has no
// controllers, so none of the tests for a controller hits it.
func hierarchies(l *cgroups.Layout) []cgroups.Hierarchy {
	all := slices.Clone(l.V1)
	if l.Unified != nil {
		all = append(all, cgroups.Hierarchy{Name: "unified", Dir: l.Unified})
	}
	return all
}

// adopt keeps m, whatever became of it.
func (g *Group) adopt(m member, l *cgroups.Layout) {
	if l.Unified != nil && m.Dir == l.Unified {
		g.unified = &m
		return
	}
	g.members = append(g.members, m)
}

// all is every part of the group, the unified one included.
func (g *Group) all() []*member {
	out := make([]*member, 0, len(g.members)+1)
	for i := range g.members {
		out = append(out, &g.members[i])
	}
	if g.unified != nil {
		out = append(out, g.unified)
	}
	return out
}

// make makes the directory. Another shim may remove an empty parent between the
// making of the parent and that of the group: then it is tried again.
func (m *member) make(p cgroups.Path) error {
	m.madeFrom = -1
	for try := 0; ; try++ {
		dir, from, err := mkdir(m.Dir, p.Rel())
		m.dir = dir
		if from >= 0 && (m.madeFrom < 0 || from < m.madeFrom) {
			m.madeFrom = from
		}
		gone := errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENOENT)
		if err == nil || !gone || try == 8 {
			return err
		}
	}
}

// mkdir is MkdirAll for the usual case, in which the parent is there and the
// group is not.
func mkdir(root *pathsafe.Dir, rel pathsafe.Rel) (*pathsafe.Dir, int, error) {
	parent, name, err := parentOf(root, rel.String())
	if err != nil {
		return root.MkdirAll(rel, 0o755)
	}
	dir, made, err := parent.Mkdir(name, 0o755)
	if parent != root {
		_ = parent.Close()
	}
	from := -1
	if made {
		from = strings.Count(rel.String(), "/")
	}
	return dir, from, err
}

// madeLeaf reports whether the group itself was made, and not found.
func (m *member) madeLeaf() bool { return m.madeFrom >= 0 }

// refuseBusy is the check of a cgroup that was there before.
func (m *member) refuseBusy() error {
	pids, err := cgroups.Procs(m.dir, nil)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("%w: the container's cgroup is not empty, it has %d processes in hierarchy %s", cgroups.ErrBusy, len(pids), m.Name)
	}
	if m.has("freezer") {
		state, err := freezerState(m.dir)
		if err != nil {
			return err
		}
		if state != thawed {
			return fmt.Errorf("%w: the container's cgroup unexpectedly frozen", cgroups.ErrBusy)
		}
	}
	return nil
}

// unmake removes the directories that Create made, the deepest first. What is
// not empty belongs to somebody else by now.
func (g *Group) unmake() {
	at := g.path.Rel().String()
	for _, m := range g.all() {
		if m.madeFrom < 0 {
			continue
		}
		for at := at; strings.Count(at, "/") >= m.madeFrom; at = path.Dir(at) {
			if removeDir(m.Dir, at) != nil || !strings.Contains(at, "/") {
				break
			}
		}
	}
}

// removeDir removes one empty cgroup at the path at below root. One that is not
// there is no error.
func removeDir(root *pathsafe.Dir, at string) error {
	parent, name, err := parentOf(root, at)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	if parent != root {
		defer parent.Close()
	}
	err = parent.Rmdir(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// parentOf opens the directory that holds the cgroup at. It is root itself for a
// path of one component, and otherwise the caller's to close.
func parentOf(root *pathsafe.Dir, at string) (*pathsafe.Dir, pathsafe.Name, error) {
	dir, base := path.Split(at)
	name, err := pathsafe.ParseName(base)
	if err != nil || dir == "" {
		return root, name, err
	}
	rel, err := pathsafe.ParseRel(path.Clean(dir))
	if err != nil {
		return nil, name, err
	}
	parent, err := root.Sub(rel)
	return parent, name, err
}

// Path is where the group is.
func (g *Group) Path() cgroups.Path { return g.path }

// JoinFDs gives the directories whose cgroup.procs a process writes "0" to in
// order to join. They stay the group's. The unified hierarchy is not among them:
// see IntoFD.
func (g *Group) JoinFDs() []int {
	fds := make([]int, 0, len(g.members))
	for i := range g.members {
		fds = append(fds, g.members[i].dir.FD())
	}
	return fds
}

// IntoFD gives the directory for CLONE_INTO_CGROUP, or -1. It stays the group's.
// Where the kernel refuses the clone, the process can join it as it joins the
// others.
func (g *Group) IntoFD() int {
	if g.unified == nil {
		return -1
	}
	return g.unified.dir.FD()
}

// MountDirs lists what a container sees in /sys/fs/cgroup. The unified hierarchy
// is not part of it: it has no controllers, and programs that find it take the
// host for one of version 2.
func (g *Group) MountDirs() []cgroups.MountDir {
	dirs := make([]cgroups.MountDir, 0, len(g.members))
	for i := range g.members {
		m := &g.members[i]
		dirs = append(dirs, m.Hierarchy.MountDir(m.dir.FD()))
	}
	return dirs
}

// member gives the part of the group that has a controller, or nil.
func (g *Group) member(controller string) *member {
	for i := range g.members {
		if g.members[i].has(controller) {
			return &g.members[i]
		}
	}
	return nil
}

// Dir implements cgroups.Target.
func (g *Group) Dir(w cgroups.Write) *pathsafe.Dir {
	if m := g.member(w.Controller); m != nil {
		return m.dir
	}
	return nil
}

// Name implements cgroups.Target.
func (g *Group) Name() string { return g.path.String() }

// Close closes every descriptor. The cgroup stays. Closing again does nothing.
func (g *Group) Close() {
	g.statMu.Lock()
	g.stat.close()
	g.statMu.Unlock()
	g.oomMu.Lock()
	g.oom.close()
	g.oomMu.Unlock()
	for _, m := range g.all() {
		if m.dir != nil {
			_ = m.dir.Close()
		}
	}
}
