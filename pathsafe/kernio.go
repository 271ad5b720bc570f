package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// Read reads the whole file n in d into buf and returns the number of bytes.
// ErrTooBig means that the file holds more than len(buf). The file is opened by
// openat2 under d's policy, so the value may be used for a decision. It does not
// allocate. Not for root filesystems: see ReadHead.
func (d *Dir) Read(n Name, buf []byte) (int, error) {
	raw, ok := d.fd.Acquire()
	if !ok {
		return 0, d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	f, err := d.openFile(raw, n.c, unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	got, errno := preadAll(f, buf, d.policy == PolicyKernfs)
	_ = unix.Close(f)
	switch {
	case errno != 0:
		return 0, d.openFailed("pread", raw, n.String(), errno)
	case got > len(buf):
		return len(buf), d.refuse(n.String(), ErrTooBig, "")
	}
	return got, nil
}

// OpenRead opens the file n in d for File.ReadAt0.
//
// On PolicyKernfs this is the plain open that reading is permitted: openat of
// one component, then fstatfs on what was opened must say the filesystem that d
// is on. It keeps working under a system call filter that takes openat2 away. It
// does not notice another cgroup's file mounted over this one, which only root
// in the shim's mount namespace can do; use Read for a value that decides
// something. On the other policies it is openat2, as everywhere.
func (d *Dir) OpenRead(n Name) (*File, error) {
	raw, ok := d.fd.Acquire()
	if !ok {
		return nil, d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	var f int
	var err error
	if d.policy == PolicyKernfs {
		f, err = d.openKernfsRead(raw, n.c)
	} else {
		f, err = d.openFile(raw, n.c, unix.O_RDONLY)
	}
	if err != nil {
		return nil, err
	}
	return newFile(f, d.policy, d.tree, d.at, n.String()), nil
}

// openKernfsRead is the statfs-checked open: see OpenRead.
func (d *Dir) openKernfsRead(raw int, c linux.CString) (int, error) {
	f, errno := linux.Openat(raw, c, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno == 0 {
		f, errno = linux.NotStdio(f)
	}
	if errno != 0 {
		return -1, d.openFailed("openat", raw, c.String(), errno)
	}
	fstype, errno := fsType(f)
	if errno != 0 {
		_ = unix.Close(f)
		return -1, d.fail("fstatfs", c.String(), errno)
	}
	if fstype != d.id.FSType {
		_ = unix.Close(f)
		return -1, d.refuse(c.String(), ErrEscape, "file is on another kind of filesystem")
	}
	return f, nil
}

// ReadCgroupFile reads a cgroup file by its absolute path, for a cgroup of which
// no Dir is held, such as a parent that /proc/self/cgroup names. The last
// component may be no link, and what was opened must be a regular file of a
// cgroup filesystem. The value may be reported and must decide nothing: which
// cgroup's file it is, is not known. ErrTooBig is as for Read.
func ReadCgroupFile(abs string, buf []byte) (int, error) {
	c, err := absPath("cgroup file", abs)
	if err != nil {
		return 0, err
	}
	d := &Dir{policy: PolicyKernfs, tree: "cgroup by path"}
	f, errno := linux.Openat(-1, c, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno == 0 {
		f, errno = linux.NotStdio(f)
	}
	if errno != 0 {
		return 0, d.fail("openat", abs, errno)
	}
	defer unix.Close(f)
	id, errno := ident(f)
	switch {
	case errno != 0:
		return 0, d.fail("statx", abs, errno)
	case id.FSType != fsCgroup && id.FSType != fsCgroup2, id.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, d.refuse(abs, ErrType, "not a file of a cgroup")
	}
	n, errno := preadAll(f, buf, true)
	switch {
	case errno != 0:
		return 0, d.fail("pread", abs, errno)
	case n > len(buf):
		return len(buf), d.refuse(abs, ErrTooBig, "")
	}
	return n, nil
}

// openFile opens a file for reading or writing by openat2, and checks that it is
// a regular one where that is not certain. NO_XDEV below a verified root proves
// it in cgroupfs, where there are regular files and directories only. In procfs
// there are the same two, and links, which the lookup has followed.
func (d *Dir) openFile(raw int, c linux.CString, flags uint64) (int, error) {
	if d.policy.rootfs() {
		return -1, d.refuse(c.String(), ErrPolicy, "files of a root filesystem are not opened by name")
	}
	if err := d.checkOwn(raw); err != nil {
		return -1, err
	}
	f, errno := d.open(raw, c, flags, 0)
	if errno != 0 {
		return -1, d.openFailed("openat2", raw, c.String(), errno)
	}
	if d.policy == PolicyState {
		if err := d.checkStateFile(f, c); err != nil {
			_ = unix.Close(f)
			return -1, err
		}
	}
	return f, nil
}

func (d *Dir) checkStateFile(f int, c linux.CString) error {
	var st unix.Statx_t
	id, errno := fstatx(f, &st)
	switch {
	case errno != 0:
		return d.fail("statx", c.String(), errno)
	case id.Mode&unix.S_IFMT != unix.S_IFREG:
		return d.refuse(c.String(), ErrType, "not a regular file")
	case st.Uid != 0:
		return d.refuse(c.String(), ErrType, "owner is not root")
	}
	return nil
}

// Write opens the file n in d for writing and gives it data in exactly one
// write(2). The file must exist. It is opened by openat2 and nothing else: if
// that is refused, so is the write. It does not allocate.
func (d *Dir) Write(n Name, data []byte) error {
	raw, ok := d.fd.Acquire()
	if !ok {
		return d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	f, err := d.openFile(raw, n.c, unix.O_WRONLY)
	if err != nil {
		return err
	}
	put, errno := writeOnce(f, data)
	_ = unix.Close(f)
	switch {
	case errno == unix.ENODEV && d.policy == PolicyKernfs && !cgroupIsDead(raw):
		// A controller's own answer, such as a device that does not exist.
		return d.fail("write", n.String(), errno)
	case errno == unix.ENODEV:
		return d.openFailed("write", raw, n.String(), errno)
	case errno != 0:
		return d.fail("write", n.String(), errno)
	case put < len(data):
		return d.refuse(n.String(), ErrShortWrite, "")
	}
	return nil
}
