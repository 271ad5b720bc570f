package pathsafe

import (
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// mayMake refuses to make or remove anything in a tree that is not for it.
func (d *Dir) mayMake(path string) error {
	if d.policy == PolicyKernfs || d.policy == PolicyState {
		return nil
	}
	return d.refuse(path, ErrPolicy, "nothing is made or removed in "+d.policy.String())
}

// Mkdir makes the directory n in d, if it is not there, and opens it. The mode
// is perm less the process's umask. created tells which; it can be true
// together with an error if the new directory could not be opened.
//
// Remaining race: whoever may write to d can put another directory of the same
// filesystem in its place before it is opened. What is opened is inside d in any
// case, and, on PolicyState, root's.
func (d *Dir) Mkdir(n Name, perm uint32) (sub *Dir, created bool, err error) {
	if err := d.mayMake(n.String()); err != nil {
		return nil, false, err
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return nil, false, d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	if err := d.checkOwn(raw); err != nil {
		return nil, false, err
	}
	created, err = d.mkdirat(raw, n.c, perm)
	if err != nil {
		return nil, false, err
	}
	sub, err = d.sub(raw, n.c)
	return sub, created, err
}

func (d *Dir) mkdirat(raw int, c linux.CString, perm uint32) (created bool, err error) {
	if errno := valid(c); errno != 0 {
		return false, d.fail("mkdirat", "", errno)
	}
	switch errno := errnoOf(unix.Mkdirat(raw, c.String(), perm)); errno {
	case 0:
		return true, nil
	case unix.EEXIST:
		return false, nil
	default:
		return false, d.openFailed("mkdirat", raw, c.String(), errno)
	}
}

// MkdirAll makes the directories of r that are missing and opens the last. It is
// one openat2 if none is. createdFrom is the index of the first component that
// was made, or -1: with an error it tells what is left to clean up.
func (d *Dir) MkdirAll(r Rel, perm uint32) (sub *Dir, createdFrom int, err error) {
	if err := d.mayMake(r.String()); err != nil {
		return nil, -1, err
	}
	if errno := valid(r.c); errno != 0 {
		return nil, -1, d.fail("mkdirat", "", errno)
	}
	if d.policy == PolicyKernfs { // state directories are checked one by one
		raw, ok := d.fd.Acquire()
		if !ok {
			return nil, -1, d.refuse(r.String(), ErrClosed, "")
		}
		sub, err = d.sub(raw, r.c)
		d.fd.Release()
		if err == nil {
			return sub, -1, nil
		}
	}
	createdFrom = -1
	cur := d
	for i, comp := range r.split() {
		c, _ := linux.NewCString(comp)
		next, created, err := cur.Mkdir(Name{c}, perm)
		if cur != d {
			_ = cur.Close()
		}
		if created && createdFrom < 0 {
			createdFrom = i
		}
		if err != nil {
			return nil, createdFrom, err
		}
		cur = next
	}
	return cur, createdFrom, nil
}

// Rmdir removes the empty directory n in d.
func (d *Dir) Rmdir(n Name) error { return d.unlink(n, unix.AT_REMOVEDIR) }

// Unlink removes the file n in d. PolicyState only.
func (d *Dir) Unlink(n Name) error {
	if d.policy != PolicyState {
		return d.refuse(n.String(), ErrPolicy, "no files are removed in "+d.policy.String())
	}
	return d.unlink(n, 0)
}

func (d *Dir) unlink(n Name, flags int) error {
	if err := d.mayMake(n.String()); err != nil {
		return err
	}
	raw, ok := d.fd.Acquire()
	if !ok {
		return d.refuse(n.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	if err := d.checkOwn(raw); err != nil {
		return err
	}
	if errno := d.unlinkat(raw, n, flags); errno != 0 {
		return d.openFailed("unlinkat", raw, n.String(), errno)
	}
	return nil
}

func (d *Dir) unlinkat(raw int, n Name, flags int) unix.Errno {
	if errno := valid(n.c); errno != 0 {
		return errno
	}
	for {
		errno := errnoOf(unix.Unlinkat(raw, n.c.String(), flags))
		if errno != unix.EINTR {
			return errno
		}
	}
}

// DirEnt is one entry of a directory.
type DirEnt struct {
	Name string // one component, otherwise as the filesystem has it: it may hold any byte
	Ino  uint64
	Type uint8 // unix.DT_DIR, ...; DT_UNKNOWN if the filesystem does not tell
}

// Component returns the name as a path, for Sub and the like. It takes what a
// filesystem gives, so it is laxer than ParseName: whoever may make cgroups can
// give them control characters, and must not become invisible by that. A name
// with a slash or a NUL byte, "", "." and ".." are EINVAL as ever.
func (e DirEnt) Component() (Name, error) {
	n, ok := kernelName(e.Name)
	if !ok {
		return Name{}, &ParseError{What: "directory entry", Input: e.Name, Why: "not one component"}
	}
	return n, nil
}

// List returns the entries of d without "." and "..", in no order. More than
// limit entries are ErrTooMany.
func (d *Dir) List(limit int) ([]DirEnt, error) {
	raw, ok := d.fd.Acquire()
	if !ok {
		return nil, d.refuse(".", ErrClosed, "")
	}
	defer d.fd.Release()
	if err := d.checkOwn(raw); err != nil {
		return nil, err
	}
	return d.list(raw, limit)
}

// here is the directory itself, for a second open of it.
const here = linux.CString(".\x00")

func (d *Dir) list(raw, limit int) ([]DirEnt, error) {
	f, errno := d.open(raw, here, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errno != 0 {
		return nil, d.openFailed("openat2", raw, ".", errno)
	}
	defer unix.Close(f)
	var out []DirEnt
	buf := make([]byte, 8192)
	for {
		n, err := unix.Getdents(f, buf)
		if errno := errnoOf(err); errno == unix.EINTR {
			continue
		} else if errno != 0 {
			return nil, d.openFailed("getdents64", raw, ".", errno)
		}
		if n == 0 {
			return out, nil
		}
		var ok bool
		if out, ok = linux.ParseDirents(out, buf[:n], addEntry); !ok {
			return nil, d.fail("getdents64", ".", unix.EUCLEAN)
		}
		if len(out) > limit {
			return nil, d.refuse(".", ErrTooMany, "")
		}
	}
}

func addEntry(out []DirEnt, ino uint64, typ uint8, name string) []DirEnt {
	if name == "." || name == ".." {
		return out
	}
	return append(out, DirEnt{Name: name, Ino: ino, Type: typ})
}
