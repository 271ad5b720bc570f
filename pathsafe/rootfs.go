package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/fd"
)

// Kind is what Resolve has to find.
type Kind uint8

// The kinds. None of them is ever a symbolic link.
const (
	KindDir        Kind = iota // a directory
	KindReg                    // a regular file
	KindAnyNonLink             // anything
)

// String names the kind, for messages.
func (k Kind) String() string {
	switch k {
	case KindDir:
		return "directory"
	case KindReg:
		return "regular file"
	}
	return "file that is not a link"
}

// Target is a place in a root filesystem: what was found there, held open
// (O_PATH), and how it was found.
type Target struct {
	fd   fd.FD
	id   ID
	root *Dir
	path InRoot
}

// FD returns the descriptor, which stays t's: it is valid until Close, and -1
// afterwards. It is O_PATH, so nothing of the file was opened.
func (t *Target) FD() int { return t.fd.Int() }

// ID returns the identity that was found.
func (t *Target) ID() ID { return t.id }

// Path returns the path that was resolved.
func (t *Target) Path() InRoot { return t.path }

// Close closes the descriptor. Closing again does nothing.
func (t *Target) Close() error { return t.fd.Close() }

// Resolve finds p below d, which is a root filesystem. Under PolicyRootfs links
// are followed inside the root, also in the last place; under PolicyRootfsStrict
// any link is ErrEscape.
//
// The target was inside the root during the call. It can be moved out of it
// later by whoever may rename it: see Verify.
func (d *Dir) Resolve(p InRoot, want Kind) (*Target, error) {
	raw, err := d.rootfs(p)
	if err != nil {
		return nil, err
	}
	defer d.fd.Release()
	n, id, err := d.resolve(raw, p, want)
	if err != nil {
		return nil, err
	}
	t := &Target{id: id, root: d, path: p}
	t.fd.Init(n)
	return t, nil
}

// rootfs acquires d for an operation on a root filesystem. The caller releases
// d.fd if there is no error.
func (d *Dir) rootfs(p InRoot) (int, error) {
	if !d.policy.rootfs() {
		return -1, d.refuse(p.String(), ErrPolicy, "not a root filesystem")
	}
	if errno := valid(p.c); errno != 0 {
		return -1, d.fail("openat2", "", errno)
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return -1, d.refuse(p.String(), ErrClosed, "")
	}
	return raw, nil
}

// resolve returns a new O_PATH descriptor. raw is d's.
func (d *Dir) resolve(raw int, p InRoot, want Kind) (int, ID, error) {
	flags := uint64(unix.O_PATH)
	if want == KindDir {
		flags |= unix.O_DIRECTORY
	}
	n, errno := d.open(raw, p.c, flags, 0)
	if errno != 0 {
		return -1, ID{}, d.openFailed("openat2", raw, p.String(), errno)
	}
	id, errno := ident(n)
	if errno != 0 {
		_ = unix.Close(n)
		return -1, id, d.fail("statx", p.String(), errno)
	}
	if !kindOK(id.Mode, want) {
		_ = unix.Close(n)
		return -1, id, d.refuse(p.String(), ErrType, "not a "+want.String())
	}
	return n, id, nil
}

func kindOK(mode uint32, want Kind) bool {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return false
	case unix.S_IFDIR:
		return want != KindReg
	case unix.S_IFREG:
		return want != KindDir
	default:
		return want == KindAnyNonLink
	}
}

// Stat returns the identity of p below d, following links as Resolve does.
// Nothing is opened but the path.
func (d *Dir) Stat(p InRoot) (ID, error) {
	raw, err := d.rootfs(p)
	if err != nil {
		return ID{}, err
	}
	defer d.fd.Release()
	n, id, err := d.resolve(raw, p, KindAnyNonLink)
	if err != nil {
		return ID{}, err
	}
	_ = unix.Close(n)
	return id, nil
}

// ReadHead reads the first len(buf) bytes of the regular file p below d and
// returns how many there are. A FIFO, a device or a socket is ErrType and is
// never opened: what was checked is what is read.
func (d *Dir) ReadHead(p InRoot, buf []byte) (int, error) {
	raw, err := d.rootfs(p)
	if err != nil {
		return 0, err
	}
	defer d.fd.Release()
	n, _, err := d.resolve(raw, p, KindReg)
	if err != nil {
		return 0, err
	}
	defer unix.Close(n)
	f, err := reopen(n)
	if err != nil {
		if e, ok := err.(*OpError); ok && e.Errno != 0 {
			return 0, d.fail(e.Op, p.String(), e.Errno)
		}
		return 0, err
	}
	defer unix.Close(f)
	got := 0
	for got < len(buf) {
		m, err := unix.Pread(f, buf[got:], int64(got))
		if errno := errnoOf(err); errno == unix.EINTR {
			continue
		} else if errno != 0 {
			return got, d.fail("pread", p.String(), errno)
		}
		if m == 0 {
			break
		}
		got += m
	}
	return got, nil
}
