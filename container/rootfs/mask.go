package rootfs

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// maskSources makes what masks are cloned from: the host's null device and an
// empty read-only tmpfs, never anything of the container's (CVE-2025-31133).
func (s *steps) maskSources() {
	if len(s.r.cfg.Masked) == 0 {
		return
	}
	null := s.b.Openat2(plan.Cwd, "/dev/null", pathHow(0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS))
	st := s.b.NewBuf(statxSize)
	s.b.Statx(null.FD(), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, st)
	for i, want := range []byte{1, 0, 0, 0, 3, 0, 0, 0} { // device 1:3, null(4)
		s.b.ExpectByte(st, statxRdev+i, want, unix.ENODEV)
	}
	s.null = null.FD()

	s.empty = s.newMount("tmpfs", []param{{"source", "tmpfs"}, {"size", "4k"}, {"nr_inodes", "2"}, {"mode", "755"}}, mountOptions{attrs: attrs{
		set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
	}})
}

// pathResolve is strict below the kernel's own file systems. Elsewhere links of
// the image are followed inside the root: what they lead to is what is masked.
func pathResolve(p string) uint64 {
	for _, k := range []string{"proc", "sys"} {
		if r := relative(p); r == k || strings.HasPrefix(r, k+"/") {
			return strict
		}
	}
	return inRoot
}

// mask covers p: a directory with the empty tmpfs, anything else with the null
// device. A path that is not there needs no mask.
func (s *steps) mask(p string) {
	how := pathResolve(p)
	done, file := s.b.NewLabel(), s.b.NewLabel()
	dir := s.lookup(p, unix.O_DIRECTORY, how)
	s.b.OnError(done, unix.ENOENT)
	s.b.OnError(file, unix.ENOTDIR)
	s.coverDir(dir, p, how, done)
	s.b.Place(file)
	t := s.lookup(p, 0, how)
	// ENOTDIR again: a name below a file, which is not there either.
	s.b.OnError(done, unix.ENOENT, unix.ENOTDIR)
	s.cover(s.null, t, p, how)
	s.b.Place(done)
}

// coverDir uses clones of the one tmpfs. What is cloned has to be attached in
// the caller's namespace, or the clone (before Linux 6.15) or its attachment is
// EINVAL: so the first mask is the tmpfs itself.
func (s *steps) coverDir(t plan.Slot, p string, how uint64, done plan.Label) {
	first := s.b.NewLabel()
	c := s.b.OpenTree(s.empty, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	s.b.OnError(first, unix.EINVAL)
	s.move(c.FD(), t)
	s.b.OnError(first, unix.EINVAL)
	s.verify(c.FD(), p, how)
	s.b.OnSuccess(done)
	s.b.Place(first)
	s.attach(s.empty, t, p, how)
	s.b.OnSuccess(done)
}

func (s *steps) cover(source plan.FD, t plan.Slot, p string, how uint64) {
	c := s.b.OpenTree(source, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	s.attach(c.FD(), t, p, how)
}

// readonly makes p and all below it read-only: a clone gets the attribute
// before it is attached, so that nothing is addressed by a path the image could
// change in between (CVE-2026-115521).
func (s *steps) readonly(p string) {
	how := pathResolve(p)
	done := s.b.NewLabel()
	t := s.lookup(p, 0, how)
	s.b.OnError(done, unix.ENOENT, unix.ENOTDIR)
	c := s.b.OpenTree(t.FD(), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	s.b.MountSetattr(c.FD(), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	s.attach(c.FD(), t, p, how)
	s.b.Place(done)
}
