package cgroup2

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

// Group is a cgroup of version 2. It holds one descriptor for its directory, and
// after the first Stat one for each file read there. Its methods may be called
// from several goroutines.
type Group struct {
	path cgroups.Path
	root *pathsafe.Dir // of the hierarchy, the Layout's
	dir  *pathsafe.Dir
	made int // index of the first component made by Create, -1 if none

	controllers []string // what cgroup.controllers says; fixed after Create and Open
	enableErr   error    // why some controllers could not be enabled, if so

	setMu sync.Mutex // one Set at a time: each restores what it found

	statMu sync.Mutex
	stat   statFiles // guarded by statMu

	oomMu sync.Mutex
	oom   oomFiles // guarded by oomMu
}

// Create makes the cgroup, enables the controllers on the way to it and applies
// res. The device rules are applied also if res has none or is nil: everything
// but the default devices is denied. An existing cgroup is taken if it is empty
// and not frozen; otherwise the error is cgroups.ErrBusy. After an error nothing
// is left of what Create made, except controllers that were enabled above.
func Create(l *cgroups.Layout, p cgroups.Path, res *specs.LinuxResources) (_ *Group, err error) {
	if u, ok := p.Unit(); ok {
		return nil, fmt.Errorf("create cgroup %s: unit %s: %w", p, u.Name, cgroups.ErrSystemd)
	}
	if l.Unified == nil {
		return nil, fmt.Errorf("create cgroup %s: this host has no unified hierarchy: %w", p, cgroups.ErrNoController)
	}
	g := &Group{path: p, root: l.Unified, made: -1}
	defer func() {
		if err != nil {
			g.unmake()
			g.Close()
			err = fmt.Errorf("create cgroup %s: %w", p, err)
		}
	}()
	if err := g.make(); err != nil {
		return nil, err
	}
	fresh := g.made >= 0
	if !fresh {
		if err := g.refuseBusy(); err != nil {
			return nil, err
		}
	}
	if err := g.enableControllers(); err != nil {
		return nil, err
	}
	if err := g.set(res, fresh, true); err != nil {
		return nil, err
	}
	return g, nil
}

// Adopt takes the cgroup of a unit that systemd has started, with its processes,
// and applies res to it as Create does. The controllers are those that systemd
// has enabled. After an error the cgroup is as it was.
func Adopt(l *cgroups.Layout, p cgroups.Path, res *specs.LinuxResources) (*Group, error) {
	g, err := Open(l, p)
	if err != nil {
		return nil, err
	}
	if err = checkType(g.dir); err == nil {
		err = g.set(res, false, true)
	}
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("adopt cgroup %s: %w", p, err)
	}
	return g, nil
}

// Open finds an existing cgroup; if there is none the error is
// cgroups.ErrNotFound.
func Open(l *cgroups.Layout, p cgroups.Path) (*Group, error) {
	if l.Unified == nil {
		return nil, fmt.Errorf("open cgroup %s: this host has no unified hierarchy: %w", p, cgroups.ErrNotFound)
	}
	dir, err := l.Unified.Sub(p.Rel())
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("open cgroup %s: %w", p, cgroups.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", p, err)
	}
	g := &Group{path: p, root: l.Unified, dir: dir, made: -1}
	if g.controllers, err = controllers(dir); err != nil {
		g.Close()
		return nil, fmt.Errorf("open cgroup %s: %w", p, err)
	}
	return g, nil
}

// make makes the directory. Another shim may remove an empty parent between the
// making of the parent and that of the group: then it is tried again.
func (g *Group) make() error {
	for try := 0; ; try++ {
		dir, from, err := g.root.MkdirAll(g.path.Rel(), 0o755)
		g.dir = dir
		if from >= 0 && (g.made < 0 || from < g.made) {
			g.made = from
		}
		gone := errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENOENT)
		if err == nil || !gone || try == 8 {
			return err
		}
	}
}

// refuseBusy is the check of a cgroup that was there before.
func (g *Group) refuseBusy() error {
	text, err := readAll(g.dir, pathsafe.MustName("cgroup.events"))
	if err != nil {
		return err
	}
	for _, e := range []cgroups.Event{cgroups.Populated, cgroups.Frozen} {
		if cgroups.EventIs(text, e) {
			return fmt.Errorf("%w: it is %s", cgroups.ErrBusy, e)
		}
	}
	// cgroup.freeze says what was asked for; an empty group never gets to be
	// frozen in cgroup.events of kernels that count its processes.
	text, err = readAll(g.dir, cgroupFreeze)
	if err == nil && strings.TrimSpace(string(text)) == "1" {
		return fmt.Errorf("%w: the container's cgroup unexpectedly frozen", cgroups.ErrBusy)
	}
	return err
}

// unmake removes the directories that Create made, the deepest first. What is
// not empty belongs to somebody else by now.
func (g *Group) unmake() {
	if g.made < 0 {
		return
	}
	for at := g.path.Rel().String(); strings.Count(at, "/") >= g.made; at = path.Dir(at) {
		parent, name, err := parentOf(g.root, at)
		if err != nil {
			return
		}
		err = parent.Rmdir(name)
		if parent != g.root {
			_ = parent.Close()
		}
		if err != nil && !errors.Is(err, unix.ENOENT) || !strings.Contains(at, "/") {
			return
		}
	}
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

// JoinFDs gives nothing: processes are born in the group, see IntoFD.
func (g *Group) JoinFDs() []int { return nil }

// IntoFD gives the directory for CLONE_INTO_CGROUP. It stays the group's.
func (g *Group) IntoFD() int { return g.dir.FD() }

// MountDirs gives the group's directory, which is /sys/fs/cgroup itself in the
// container.
func (g *Group) MountDirs() []cgroups.MountDir {
	return []cgroups.MountDir{{FSType: "cgroup2", FD: g.dir.FD()}}
}

// Controllers gives the names of the controllers that the group has.
func (g *Group) Controllers() []string { return slices.Clone(g.controllers) }

// Dir implements cgroups.Target.
func (g *Group) Dir(cgroups.Write) *pathsafe.Dir { return g.dir }

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
	if g.dir != nil {
		_ = g.dir.Close()
	}
}

func (g *Group) fileError(op, file string, err error) error {
	if errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENODEV) {
		err = errors.Join(cgroups.ErrGone, err)
	}
	return &cgroups.FileError{Op: op, Group: g.path.String(), File: file, Err: err}
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
