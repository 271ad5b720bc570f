package rootfs

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// park sees to it that the container's mounts are listed in the order of the
// specification's list. What was mounted in advance has a lower number than what
// the child mounts, and /proc/PID/mountinfo is sorted by these numbers since
// Linux 6.8 (commit 2eea9ce4310d, "mounts: keep list of mounts in an rbtree").
// Whoever takes mounts down in the reverse order of the list, as an init inside
// may, relies on it.
//
// A copy has a new number. The kernel copies mounts of the caller's own mount
// namespace (open_tree(2)), so those that come after one of the child's are
// attached first, in turn, on a tmpfs below the place of the root, and copied
// from there. They go with the old root. A shared mount is left as it is: the
// next one on it would show up on the host.
func (s *steps) park(place plan.Slot) {
	late, need := false, false
	for i := range s.r.mounts {
		m := &s.r.mounts[i]
		late = late || m.fd < 0
		m.parked = late && m.fd >= 0 && m.opts.propagation != unix.MS_SHARED && m.opts.propagation != unix.MS_UNBINDABLE
		need = need || m.parked
	}
	if !need {
		return
	}
	s.parking = s.newMount("tmpfs", []param{{"source", "ibex"}, {"size", "4k"}, {"nr_inodes", "3"}, {"mode", "700"}}, mountOptions{})
	s.b.Mkdirat(s.parking, "dir", 0o700)
	s.b.Mknodat(s.parking, "file", unix.S_IFREG|0o600, 0)
	s.move(s.parking, place)
}

// copyOf parks a mount and copies it with all that is mounted below it.
func (s *steps) copyOf(m *mount, mnt plan.FD) plan.FD {
	name := "file"
	if m.dir {
		name = "dir"
	}
	s.b.MoveMount(mnt, "", s.parking, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	c := s.b.OpenTree(mnt, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC).FD()
	if m.fd == s.r.devpts {
		s.devpts, s.copied = c, true
	}
	return c
}

// sealMounts makes read-only what had to be written to until now.
func (s *steps) sealMounts() {
	for _, fd := range s.sealed {
		s.b.MountSetattr(fd, "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
}

// reopenTerminal opens the terminal through the copy of its file system, so that
// /proc/self/fd/0 is a path that exists (ttyname(3)). Where the device rules or
// nodev refuse that, the one opened in advance serves.
func (s *steps) reopenTerminal() {
	if s.r.pty == nil || !s.copied {
		return
	}
	kept := s.b.NewLabel()
	t := s.b.Openat2(s.devpts, strconv.Itoa(s.r.pty.Number), unix.OpenHow{
		Flags:   unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	s.b.OnError(kept, unix.EACCES, unix.EPERM)
	for i := range 3 {
		s.b.Dup3(t.FD(), i, 0)
	}
	s.b.Close(t.FD())
	s.b.Place(kept)
}
