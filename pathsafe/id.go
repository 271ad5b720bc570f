package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// ID says which object a descriptor names, on which mount and of which kind.
type ID struct {
	Dev, Ino  uint64
	Mnt       uint64 // mount id
	MntUnique bool   // Mnt is never reused (Linux 6.8); else only while the mount is held
	FSType    int64  // statfs f_type
	Mode      uint32 // st_mode: type and permission bits
	Rdev      uint64 // for device nodes
	UID, GID  uint32 // the owner
}

// SameObject reports whether a and b are one inode.
func (a ID) SameObject(b ID) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// SameMount reports whether a and b are on one mount. Ids that can be reused
// prove that only while a descriptor on the mount is held.
func (a ID) SameMount(b ID) bool { return a.Mnt == b.Mnt && a.MntUnique == b.MntUnique }

const (
	fsCgroup  = unix.CGROUP_SUPER_MAGIC
	fsCgroup2 = unix.CGROUP2_SUPER_MAGIC
	fsProc    = unix.PROC_SUPER_MAGIC
	fsNS      = unix.NSFS_MAGIC
)

// identMask asks for both kinds of mount id: a kernel with unique ids (6.8,
// commit 98d2b43081972) answers with that one, an older one with the other.
const identMask = unix.STATX_BASIC_STATS | unix.STATX_MNT_ID | unix.STATX_MNT_ID_UNIQUE

// fstatx fills st and makes an ID of it, without FSType.
func fstatx(raw int, st *unix.Statx_t) (ID, unix.Errno) {
	if errno := linux.Fstatx(raw, identMask, st); errno != 0 {
		return ID{}, errno
	}
	return ID{
		Dev:       unix.Mkdev(st.Dev_major, st.Dev_minor),
		Ino:       st.Ino,
		Mnt:       st.Mnt_id,
		MntUnique: st.Mask&unix.STATX_MNT_ID_UNIQUE != 0,
		Mode:      uint32(st.Mode),
		Rdev:      unix.Mkdev(st.Rdev_major, st.Rdev_minor),
		UID:       st.Uid,
		GID:       st.Gid,
	}, 0
}

// ident is fstatx with the filesystem type: two system calls.
func ident(raw int) (ID, unix.Errno) {
	var st unix.Statx_t
	id, errno := fstatx(raw, &st)
	if errno != 0 {
		return id, errno
	}
	id.FSType, errno = fsType(raw)
	return id, errno
}

// fsType returns the f_type of the filesystem that raw is on.
func fsType(raw int) (int64, unix.Errno) {
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(raw, &st)
		if err == nil {
			return st.Type, 0
		}
		if errno := errnoOf(err); errno != unix.EINTR {
			return 0, errno
		}
	}
}

// errnoOf returns the errno that x/sys gave as an error.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := err.(unix.Errno); ok {
		return errno
	}
	return unix.EINVAL
}
