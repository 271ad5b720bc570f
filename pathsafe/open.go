package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// openAbs opens an absolute host path for a tree's root: no links at all, O_PATH.
// An absolute path ignores the descriptor it is relative to; -1 makes sure that
// nothing else works.
func openAbs(c linux.CString, resolve uint64) (int, unix.Errno) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	n, errno := linux.Openat2(-1, c, &how)
	if errno != 0 {
		return -1, errno
	}
	return linux.NotStdio(n)
}

// openTree opens the directory at the absolute path abs as the root of a tree.
func openTree(abs string, policy Policy, tree string) (*Dir, error) {
	c, err := absPath(policy.String()+" path", abs)
	if err != nil {
		return nil, err
	}
	d := &Dir{policy: policy, tree: tree, host: true}
	raw, errno := openAbs(c, unix.RESOLVE_NO_SYMLINKS)
	if errno != 0 {
		return nil, d.openFailed("openat2", -1, abs, errno)
	}
	if d.id, errno = ident(raw); errno != 0 {
		_ = unix.Close(raw)
		return nil, d.fail("statx", abs, errno)
	}
	d.fd.Init(raw)
	return d, nil
}

// kernfsRoot is the inode of the root of every cgroup hierarchy.
const kernfsRoot = 1

// OpenHierarchy opens the mount of a cgroup hierarchy, version 1 or 2. It is an
// ErrType if what is found there is not cgroupfs of the entry's version, not the
// root of the hierarchy (or, in a cgroup namespace, of the namespace) or not on
// the entry's mount: something was mounted over it since. Later mounts do not
// matter; the Dir stays on the real tree.
func OpenHierarchy(m MountInfoEntry) (*Dir, error) {
	d, err := openTree(m.MountPoint, PolicyKernfs, m.FSType+" "+m.MountPoint)
	if err != nil {
		return nil, err
	}
	if err := d.checkHierarchy(m); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Dir) checkHierarchy(m MountInfoEntry) error {
	want := int64(fsCgroup)
	switch m.FSType {
	case "cgroup":
	case "cgroup2":
		want = fsCgroup2
	default:
		return d.refuse("", ErrType, "mount entry is not of type cgroup or cgroup2")
	}
	if d.id.FSType != want {
		return d.refuse("", ErrType, "filesystem is not "+m.FSType)
	}
	if m.Root != "/" {
		return d.refuse("", ErrType, "mount shows a part of the hierarchy, not its root")
	}
	if d.id.Ino != kernfsRoot {
		initial, err := initialCgroupNS()
		if err != nil {
			return err
		}
		if initial {
			return d.refuse("", ErrType, "inode is not that of the hierarchy's root")
		}
	}
	// The entry holds a reusable id; asked for alone, that is what statx gives.
	// It cannot have been reused: d holds the mount.
	var st unix.Statx_t
	if errno := linux.Fstatx(d.fd.Int(), unix.STATX_MNT_ID, &st); errno != 0 {
		return d.fail("statx", "", errno)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 || st.Mnt_id != m.ID {
		return d.refuse("", ErrType, "mount is not the one of the entry")
	}
	return nil
}

// OpenState opens a directory of ibex's own. abs is absolute, without links. It
// is an ErrType if the directory does not belong to root or is writable by
// others. What is above it is the installer's affair and is not checked.
func OpenState(abs string) (*Dir, error) {
	d, err := openTree(abs, PolicyState, "state "+abs)
	if err != nil {
		return nil, err
	}
	if err := d.checkOwn(d.fd.Int()); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// OpenRootfs opens a container's root directory in the shim's own mount
// namespace. No component of abs may be a link; the last may be a mount. The
// Dir serves to look at the root, never to mount on it: see Attach.
func OpenRootfs(abs string) (*Dir, error) {
	return openTree(abs, PolicyRootfs, "rootfs "+abs)
}

// NewRootfs makes a tree of a directory that the caller holds: the root of a
// detached mount, or of another mount namespace. It takes ownership of raw also
// if it fails. The caller says by this call that the directory is not in the
// shim's mount namespace, so that mounts may be attached below it.
func NewRootfs(raw int) (*Dir, error) {
	const tree = "rootfs"
	if raw < 0 {
		return nil, &OpError{Op: "check", Tree: tree, Path: ".", Errno: unix.EBADF}
	}
	n, errno := linux.NotStdio(raw)
	if errno != 0 {
		return nil, &OpError{Op: "fcntl", Tree: tree, Path: ".", Errno: errno}
	}
	id, errno := ident(n)
	if errno != 0 {
		_ = unix.Close(n)
		return nil, &OpError{Op: "statx", Tree: tree, Path: ".", Errno: errno}
	}
	if id.Mode&unix.S_IFMT != unix.S_IFDIR {
		_ = unix.Close(n)
		return nil, &OpError{Op: "check", Tree: tree, Path: ".", Errno: unix.ENOTDIR, kind: ErrType}
	}
	return newDir(n, id, PolicyRootfs, tree, ""), nil
}

// Strict returns a second Dir for the same root under PolicyRootfsStrict.
func (d *Dir) Strict() (*Dir, error) {
	if !d.policy.rootfs() {
		return nil, d.refuse(".", ErrPolicy, "not a root filesystem")
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return nil, d.refuse(".", ErrClosed, "")
	}
	defer d.fd.Release()
	n, err := unix.FcntlInt(uintptr(raw), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, d.fail("fcntl", ".", errnoOf(err))
	}
	s := newDir(n, d.id, PolicyRootfsStrict, d.tree, d.at)
	s.host = d.host
	return s, nil
}

// initialCgroupNS reports whether the calling thread is in the initial cgroup
// namespace. Its inode number is fixed: PROC_CGROUP_INIT_INO, 0xEFFFFFFB, in
// include/linux/proc_ns.h.
func initialCgroupNS() (bool, error) {
	p, err := OpenProc(true)
	if err != nil {
		return false, err
	}
	defer p.Close()
	f, err := p.magic("thread-self", "ns/cgroup", unix.O_RDONLY)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var st unix.Statx_t
	id, errno := fstatx(f.FD(), &st)
	if errno != 0 {
		return false, p.fail("statx", "thread-self/ns/cgroup", errno)
	}
	return id.Ino == 0xEFFFFFFB, nil
}
