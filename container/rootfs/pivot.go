package rootfs

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// isolate cuts the copied mount table off from the host's: nothing mounted here
// reaches the host. "slave" still lets the host's mounts in, which bind mounts
// with that propagation rely on until pivot.
func (s *steps) isolate() {
	prop := uint64(unix.MS_SLAVE)
	if strings.TrimPrefix(s.r.cfg.Propagation, "r") == "private" {
		prop = unix.MS_PRIVATE
	}
	s.b.MountSetattr(plan.Cwd, "/", unix.AT_RECURSIVE, unix.MountAttr{Propagation: prop})
}

// attachRoot puts the root in its place, where hooks expect to find it.
func (s *steps) attachRoot() {
	place := s.place()
	s.park(place)
	if s.r.root < 0 {
		s.mountLayers()
		return
	}
	s.root = plan.Num(s.r.root, "rootfs")
	s.move(s.root, place)
	for i := range s.r.layers {
		l := &s.r.layers[i]
		t := s.target(l.target, l.dir, inRoot)
		s.attach(plan.Num(l.fd, "layer"), t, l.target, inRoot)
	}
}

// place opens the directory that the root is attached to. In a user namespace
// the way to it may be closed: then any directory of the copied tree does.
func (s *steps) place() plan.Slot {
	open := func(p string) plan.Slot {
		return s.b.Openat2(plan.Cwd, p, pathHow(unix.O_DIRECTORY, unix.RESOLVE_NO_MAGICLINKS))
	}
	at := open(s.r.cfg.Path)
	if !s.r.cfg.IDs.Mapped() {
		return at
	}
	found := s.b.NewLabel()
	s.b.OnSuccess(found)
	s.b.Tolerate(unix.EACCES)
	open("/tmp")
	s.b.Into(at)
	s.b.Place(found)
	return at
}

// pivot makes the root the root and drops the old one. pivot_root(2): with
// "." for both, the old root ends up stacked on the new one and is detached
// from there; no directory is needed for it.
func (s *steps) pivot() {
	if s.r.cfg.Readonly {
		// Adds the bit and keeps nosuid, nodev and noexec as they are.
		s.b.MountSetattr(s.root, "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	s.b.Fchdir(s.root)
	s.b.PivotRoot(".", ".")
	s.b.Umount2(".", unix.MNT_DETACH)
	s.b.Chdir("/")
	if prop := propagation(s.r.cfg.Propagation); prop != 0 {
		if prop == unix.MS_SHARED {
			// A peer group of its own: a slave of the host's would stay one besides.
			s.b.MountSetattr(s.root, "", unix.AT_EMPTY_PATH, unix.MountAttr{Propagation: unix.MS_PRIVATE})
		}
		s.b.MountSetattr(s.root, "", unix.AT_EMPTY_PATH, unix.MountAttr{Propagation: prop})
	}
}

// propagation returns the flag for a name with or without its "r"; 0 for none.
func propagation(name string) uint64 {
	for _, p := range propagations {
		if name == p.name || name == "r"+p.name {
			return p.flag
		}
	}
	return 0
}
