package rootfs

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// steps adds steps to a plan. root is the mounted root in the child.
type steps struct {
	b    *plan.Builder
	r    *Rootfs
	root plan.FD

	null, empty plan.FD   // sources of masks, see mask.go
	parking     plan.FD   // see order.go
	sealed      []plan.FD // read-only once all is mounted
	devpts      plan.FD   // a copy of the instance with the terminal
	copied      bool      // devpts is set
}

// How a path inside the root is resolved. Strict is for the places where the
// kernel's own file systems go: no symbolic link at all, so that an image
// cannot have them mounted elsewhere (CVE-2019-19921, CVE-2023-27561).
const (
	inRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	strict = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS
)

func pathHow(flags, resolve uint64) unix.OpenHow {
	return unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: resolve}
}

// relative makes a container path relative to the root: "" and "/" are ".".
func relative(p string) string {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	if p == "" {
		return "."
	}
	return p
}

// lookup opens what is at p.
func (s *steps) lookup(p string, flags, resolve uint64) plan.Slot {
	return s.b.Openat2(s.root, relative(p), pathHow(flags, resolve))
}

// target opens the directory (or, for a bind mount of a file, the file) at p,
// and makes what is missing of it. Each part is made below a descriptor that
// was resolved inside the root, never through a path of several names.
func (s *steps) target(p string, dir bool, resolve uint64) plan.Slot {
	var flags uint64
	if dir {
		flags = unix.O_DIRECTORY
	}
	found := s.b.NewLabel()
	t := s.lookup(p, flags, resolve)
	s.b.OnSuccess(found)
	s.b.Tolerate(unix.ENOENT)
	parent := s.root
	parts := strings.Split(relative(p), "/")
	for i, name := range parts {
		last := i == len(parts)-1
		if last && !dir {
			s.b.Mknodat(parent, name, unix.S_IFREG|0o644, 0)
		} else {
			s.b.Mkdirat(parent, name, 0o755)
		}
		s.b.Tolerate(unix.EEXIST)
		prefix := strings.Join(parts[:i+1], "/")
		if last {
			s.lookup(prefix, flags, resolve)
			s.b.Into(t)
		} else {
			parent = s.lookup(prefix, unix.O_DIRECTORY, resolve).FD()
		}
	}
	s.b.Place(found)
	return t
}

// directory makes sure that p exists.
func (s *steps) directory(p string) {
	s.target(p, true, inRoot)
}

// statx(2): offset of stx_mnt_id and the whole structure's size; STATX_MNT_ID
// is Linux 5.8.
const (
	statxSize  = 256
	statxMntID = 0x90
	statxRdev  = 0x80 // stx_rdev_major, stx_rdev_minor
	maskMntID  = 0x1000
)

// attach moves mnt onto target and proves that it is what p now leads to: a
// directory that was renamed away meanwhile would have taken the mount to a
// place outside the root.
func (s *steps) attach(mnt plan.FD, target plan.Slot, p string, resolve uint64) {
	s.move(mnt, target)
	s.verify(mnt, p, resolve)
}

func (s *steps) move(mnt plan.FD, target plan.Slot) {
	s.b.MoveMount(mnt, "", target.FD(), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// verify proves that p leads to mnt.
func (s *steps) verify(mnt plan.FD, p string, resolve uint64) {
	there := s.lookup(p, 0, resolve)
	a, c := s.b.NewBuf(statxSize), s.b.NewBuf(statxSize)
	s.b.Statx(there.FD(), "", unix.AT_EMPTY_PATH, maskMntID, a)
	s.b.Statx(mnt, "", unix.AT_EMPTY_PATH, maskMntID, c)
	s.b.ExpectEqual64(a, statxMntID, c, statxMntID, unix.ESTALE)
}
