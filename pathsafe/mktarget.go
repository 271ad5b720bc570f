package pathsafe

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// maxLinks is how many links that lead to nothing MkTarget goes through, as the
// kernel does with others (MAXSYMLINKS, include/linux/namei.h).
const maxLinks = 40

// dirPerm is the mode of the directories that MkTarget makes on the way.
const dirPerm = 0o755

// MkTarget is Resolve that makes what is missing: directories of mode 0755 on
// the way and, in the last place, a directory or an empty regular file of mode
// perm, both less the process's umask. want is KindDir or KindReg.
//
// A link to a place that does not exist yet is followed inside the root under
// PolicyRootfs, because images have them (/var/run -> /run without a /run).
// Missing parts that hold ".." are ErrEscape.
//
// Remaining race: whoever may rename a directory in the root can move it away
// while something is made in it. Then an empty directory or file is made in a
// place that he controls, and the call is ErrRaced. It is never made elsewhere.
func (d *Dir) MkTarget(p InRoot, want Kind, perm uint32) (*Target, error) {
	if want != KindDir && want != KindReg {
		return nil, d.refuse(p.String(), ErrPolicy, "can make a directory or a regular file only")
	}
	t, err := d.Resolve(p, want)
	if err == nil || !errnoIs(err, unix.ENOENT) {
		return t, err
	}
	raw, err := d.rootfs(p)
	if err != nil {
		return nil, err
	}
	defer d.fd.Release()
	m := maker{d: d, raw: raw, path: p, want: want, perm: perm}
	made, err := m.make()
	if err != nil {
		return nil, err
	}
	defer unix.Close(made)
	var st unix.Statx_t
	id, errno := fstatx(made, &st)
	if errno != 0 {
		return nil, d.fail("statx", p.String(), errno)
	}
	t, err = d.Resolve(p, want)
	if err != nil {
		if errnoIs(err, unix.ENOENT) {
			return nil, d.refuse(p.String(), ErrRaced, "what was made is gone")
		}
		return nil, err
	}
	if !t.id.SameObject(id) {
		_ = t.Close()
		return nil, d.refuse(p.String(), ErrRaced, "what was made is not what is there")
	}
	return t, nil
}

// maker makes one target. d is held under raw.
type maker struct {
	d    *Dir
	raw  int
	path InRoot // for messages
	want Kind
	perm uint32
}

// make returns an O_PATH descriptor of what is at the path in the end.
func (m *maker) make() (int, error) {
	comps := cleanComponents(m.path.c.String())
	for range maxLinks {
		if len(comps) > maxComponents {
			return -1, m.d.refuse(m.path.String(), ErrTooMany, "components")
		}
		parent, rest, err := m.existing(comps)
		if err != nil {
			return -1, err
		}
		if len(rest) == 0 { // made meanwhile by someone else
			return parent, nil
		}
		link, isLink, err := m.readlink(parent, rest[0])
		if err != nil {
			_ = unix.Close(parent)
			return -1, err
		}
		if !isLink {
			return m.fill(parent, rest)
		}
		_ = unix.Close(parent)
		// The text of the link is the image's. It becomes part of a path that the
		// kernel resolves inside the root like the first one, no more.
		next := cleanComponents(link)
		if !strings.HasPrefix(link, "/") {
			next = append(comps[:len(comps)-len(rest):len(comps)-len(rest)], next...)
		}
		comps = append(next, rest[1:]...)
	}
	return -1, m.d.openFailed("openat2", m.raw, m.path.String(), unix.ELOOP)
}

// existing opens the longest beginning of comps that exists, and returns what is
// left. The whole of it is opened as the kind that is wanted, a part as a
// directory.
func (m *maker) existing(comps []string) (int, []string, error) {
	for i := len(comps); i >= 0; i-- {
		path := strings.Join(comps[:i], "/")
		if path == "" {
			path = "."
		}
		if len(path) > maxPath {
			return -1, nil, m.d.fail("openat2", m.path.String(), unix.ENAMETOOLONG)
		}
		c, ok := linux.NewCString(path)
		if !ok {
			return -1, nil, m.d.fail("openat2", m.path.String(), unix.EINVAL)
		}
		if i == len(comps) {
			n, _, err := m.d.resolve(m.raw, InRoot{c}, m.want)
			if err == nil || !errnoIs(err, unix.ENOENT) {
				return n, nil, err
			}
			continue
		}
		n, errno := m.d.open(m.raw, c, unix.O_PATH|unix.O_DIRECTORY, 0)
		switch errno {
		case 0:
			return n, comps[i:], nil
		case unix.ENOENT:
		default:
			return -1, nil, m.d.openFailed("openat2", m.raw, m.path.String(), errno)
		}
	}
	return -1, nil, m.d.fail("openat2", m.path.String(), unix.ENOENT)
}

// readlink returns the text of the link name in parent, if it is one.
func (m *maker) readlink(parent int, name string) (string, bool, error) {
	if name == ".." {
		return "", false, nil // fill refuses it
	}
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(parent, name, buf)
	switch errno := errnoOf(err); errno {
	case 0:
	case unix.ENOENT, unix.EINVAL:
		return "", false, nil
	default:
		return "", false, m.d.fail("readlinkat", m.path.String(), errno)
	}
	if m.d.policy != PolicyRootfs {
		return "", false, m.d.openFailed("openat2", m.raw, m.path.String(), unix.ELOOP)
	}
	if n > maxPath {
		return "", false, m.d.fail("readlinkat", m.path.String(), unix.ENAMETOOLONG)
	}
	return string(buf[:n]), true, nil
}

// fill makes rest below parent, which it closes, one component at a time: each
// is opened without links and mounts before the next is made in it.
func (m *maker) fill(parent int, rest []string) (int, error) {
	for _, comp := range rest {
		if comp == ".." {
			_ = unix.Close(parent)
			return -1, m.d.refuse(m.path.String(), ErrEscape, `".." in a part that does not exist`)
		}
	}
	for i, comp := range rest {
		last := i == len(rest)-1
		next, err := m.step(parent, comp, last)
		_ = unix.Close(parent)
		if err != nil {
			return -1, err
		}
		parent = next
	}
	return parent, nil
}

func (m *maker) step(parent int, comp string, last bool) (int, error) {
	c, ok := linux.NewCString(comp)
	if !ok {
		return -1, m.d.fail("mkdirat", m.path.String(), unix.EINVAL)
	}
	flags := uint64(unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC)
	op := "mkdirat"
	var err error
	switch {
	case last && m.want == KindReg:
		// mknod makes the file without opening it.
		op = "mknodat"
		err = unix.Mknodat(parent, comp, unix.S_IFREG|m.perm&0o7777, 0)
		flags = unix.O_PATH | unix.O_CLOEXEC
	case last:
		err = unix.Mkdirat(parent, comp, m.perm&0o7777)
	default:
		err = unix.Mkdirat(parent, comp, dirPerm)
	}
	if errno := errnoOf(err); errno != 0 && errno != unix.EEXIST {
		return -1, m.d.fail(op, m.path.String(), errno)
	}
	how := unix.OpenHow{Flags: flags, Resolve: PolicyKernfs.resolve()}
	n, errno := linux.Openat2(parent, c, &how)
	if errno == 0 {
		n, errno = linux.NotStdio(n)
	}
	if errno != 0 {
		return -1, m.d.openFailed("openat2", m.raw, m.path.String(), errno)
	}
	return n, nil
}

// cleanComponents splits a path and drops what means nothing in it. ".." means
// something.
func cleanComponents(p string) []string {
	var out []string
	for comp := range strings.SplitSeq(p, "/") {
		if comp != "" && comp != "." {
			out = append(out, comp)
		}
	}
	return out
}
