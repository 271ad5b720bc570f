package pathsafe

import (
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// Create makes the file n in d and opens it for writing. A file, or a link, of
// that name is EEXIST. The mode is perm whatever the umask. PolicyState only.
func (d *Dir) Create(n Name, perm uint32) (*File, error) {
	raw, err := d.state(n.String())
	if err != nil {
		return nil, err
	}
	defer d.fd.Release()
	f, err := d.create(raw, n.c, perm)
	if err != nil {
		return nil, err
	}
	return newFile(f, d.policy, d.tree, d.at, n.String()), nil
}

// state acquires d for an operation that only PolicyState has. The caller
// releases d.fd if there is no error.
func (d *Dir) state(path string) (int, error) {
	if d.policy != PolicyState {
		return -1, d.refuse(path, ErrPolicy, "not a state directory")
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return -1, d.refuse(path, ErrClosed, "")
	}
	if err := d.checkOwn(raw); err != nil {
		d.fd.Release()
		return -1, err
	}
	return raw, nil
}

func (d *Dir) create(raw int, c linux.CString, perm uint32) (int, error) {
	f, errno := d.open(raw, c, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, perm&0o7777)
	if errno != 0 {
		return -1, d.openFailed("openat2", raw, c.String(), errno)
	}
	if err := unix.Fchmod(f, perm&0o7777); err != nil {
		_ = unix.Close(f)
		_ = unix.Unlinkat(raw, c.String(), 0)
		return -1, d.fail("fchmod", c.String(), errnoOf(err))
	}
	return f, nil
}

var tempCounter atomic.Uint64

// tempName is unique in this process, and among living ones.
func tempName() string {
	return ".tmp-" + strconv.Itoa(unix.Getpid()) + "-" + strconv.FormatUint(tempCounter.Add(1), 36)
}

// WriteFileAtomic replaces the file n in d by one with data and the mode perm.
// At any moment, also after this process was killed, n is the whole old file or
// the whole new one. Nothing waits for a disk: what is kept here does not outlast
// the processes it is about, so a power cut takes both. A link of that name is
// replaced, not followed. PolicyState only.
//
// A crash can leave a file named .tmp-* behind, never under the name n.
func (d *Dir) WriteFileAtomic(n Name, data []byte, perm uint32) error {
	raw, err := d.state(n.String())
	if err != nil {
		return err
	}
	defer d.fd.Release()
	if errno := valid(n.c); errno != 0 {
		return d.fail("renameat2", "", errno)
	}
	// A crashed process of our number may have left the name.
	var temp linux.CString
	var f int
	for range 100 {
		temp, _ = linux.NewCString(tempName())
		if f, err = d.create(raw, temp, perm); errnoIs(err, unix.EEXIST) {
			continue
		}
		break
	}
	if err != nil {
		return err
	}
	op, errno := writeAll(f, data)
	_ = unix.Close(f)
	if errno == 0 {
		op, errno = "renameat2", errnoOf(unix.Renameat2(raw, temp.String(), raw, n.String(), 0))
	}
	if errno != 0 {
		_ = unix.Unlinkat(raw, temp.String(), 0)
		return d.fail(op, n.String(), errno)
	}
	return nil
}

// errnoIs reports whether err is an OpError with that errno.
func errnoIs(err error, errno unix.Errno) bool {
	e, ok := err.(*OpError)
	return ok && e.Errno == errno
}

// writeAll writes data. It returns the call that failed.
func writeAll(f int, data []byte) (string, unix.Errno) {
	for len(data) > 0 {
		n, errno := writeOnce(f, data)
		if errno != 0 {
			return "write", errno
		}
		data = data[n:]
	}
	return "", 0
}

// ReadFile returns the content of the file n in d, which must be a regular file
// of root's. More than limit bytes are ErrTooBig. PolicyState only.
func (d *Dir) ReadFile(n Name, limit int) ([]byte, error) {
	if d.policy != PolicyState {
		return nil, d.refuse(n.String(), ErrPolicy, "not a state directory")
	}
	f, err := d.OpenRead(n)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.readAll(limit)
}
