package pathsafe

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// hostOpen opens a path of the spec as the host resolves it, links included. The
// spec is trusted; the path is resolved once and the descriptor used afterwards.
func hostOpen(what, abs string, flags uint64) (int, error) {
	why := ""
	switch {
	case !strings.HasPrefix(abs, "/"):
		why = "not absolute"
	case len(abs) > maxPath:
		why = "longer than 4095 bytes"
	case strings.IndexByte(abs, 0) >= 0:
		why = "holds a NUL byte"
	}
	if why != "" {
		return -1, &ParseError{What: what, Input: abs, Why: why}
	}
	c, _ := linux.NewCString(abs)
	how := unix.OpenHow{Flags: openFlags(flags)}
	n, errno := linux.Openat2(-1, c, &how)
	if errno == 0 {
		n, errno = linux.NotStdio(n)
	}
	if errno != 0 {
		return -1, &OpError{Op: "openat2", Path: abs, Errno: errno}
	}
	return n, nil
}

// OpenSource opens the source of a bind mount, or of a mount, on the host: a file
// of any kind, O_PATH, links followed. abs is absolute. The caller owns the
// descriptor, and clones the mount from it (open_tree with AT_EMPTY_PATH).
func OpenSource(abs string) (int, ID, error) {
	n, err := hostOpen("mount source", abs, unix.O_PATH)
	if err != nil {
		return -1, ID{}, err
	}
	id, errno := ident(n)
	if errno == 0 && id.FSType == unix.AUTOFS_SUPER_MAGIC && id.Mode&unix.S_IFMT == unix.S_IFDIR {
		// O_PATH alone does not trigger an automount (open(2)); with O_DIRECTORY
		// it does, as mount(2) would.
		_ = unix.Close(n)
		if n, err = hostOpen("mount source", abs, unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return -1, ID{}, err
		}
		id, errno = ident(n)
	}
	if errno != 0 {
		_ = unix.Close(n)
		return -1, ID{}, &OpError{Op: "statx", Path: abs, Errno: errno}
	}
	return n, id, nil
}

// OpenNamespace opens a namespace by a path of the spec, such as
// /var/run/netns/x. nstype is the CLONE_NEW flag it has to be of; anything else,
// also a file that is no namespace, is ErrType and was not opened for reading.
// The caller owns the descriptor.
func OpenNamespace(abs string, nstype int) (int, error) {
	seen, err := hostOpen("namespace path", abs, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	defer unix.Close(seen)
	was, errno := ident(seen)
	if errno != 0 {
		return -1, &OpError{Op: "statx", Path: abs, Errno: errno}
	}
	if was.FSType != fsNS {
		return -1, &OpError{Op: "check", Path: abs, kind: ErrType, detail: "not a namespace"}
	}
	n, err := hostOpen("namespace path", abs, unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	is, errno := ident(n)
	if errno != 0 || !is.SameObject(was) {
		_ = unix.Close(n)
		return -1, &OpError{Op: "check", Path: abs, Errno: errno, kind: ErrRaced}
	}
	if err := checkNS(n, abs, nstype); err != nil {
		_ = unix.Close(n)
		return -1, err
	}
	return n, nil
}

// OpenDevNull opens the host's /dev/null for reading and writing and makes sure
// that it is: character device 1:3, through no link. The caller owns the
// descriptor, which blocks like any other; it can be given to processes and be
// the source of a mount.
func OpenDevNull() (int, error) {
	const path = "/dev/null"
	c, _ := linux.NewCString(path)
	// O_PATH first, so that no other device is opened.
	for _, flags := range []uint64{unix.O_PATH | unix.O_CLOEXEC, unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC} {
		how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
		n, errno := linux.Openat2(-1, c, &how)
		if errno == 0 {
			n, errno = linux.NotStdio(n)
		}
		if errno != 0 {
			return -1, &OpError{Op: "openat2", Path: path, Errno: errno}
		}
		id, errno := ident(n)
		if errno == 0 && id.Mode&unix.S_IFMT == unix.S_IFCHR && id.Rdev == unix.Mkdev(1, 3) {
			if flags&unix.O_PATH == 0 {
				return n, nil
			}
			_ = unix.Close(n)
			continue
		}
		_ = unix.Close(n)
		return -1, &OpError{Op: "check", Path: path, Errno: errno, kind: ErrType, detail: "not the null device"}
	}
	return -1, &OpError{Op: "openat2", Path: path, Errno: unix.ENXIO}
}
