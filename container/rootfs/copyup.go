package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyDepth bounds how deep a tree is copied.
const copyDepth = 128

// copyUp fills a tmpfs with what the image has where it will be mounted (option
// tmpcopyup). Nobody can reach the tmpfs yet, and nothing runs in the image; no
// link of it is followed below the directory itself. Devices and sockets are left
// out, and so are extended attributes.
func (r *Rootfs) copyUp(m *mount) error {
	if r.dir == nil {
		return fmt.Errorf("option tmpcopyup: the root is made by mount(2): %w", ErrUnsupported)
	}
	for i := range r.mounts {
		if strings.HasPrefix(m.dest, r.mounts[i].dest+"/") {
			return fmt.Errorf("option tmpcopyup: below the mount on %s: %w", r.mounts[i].dest, ErrUnsupported)
		}
	}
	from, err := unix.Openat2(r.dir.FD(), relative(m.dest), &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: inRoot})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(from, &st); err == nil && !has(m.params, "uid") && !has(m.params, "gid") {
			err = unix.Fchownat(m.fd, "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH) // it is an O_PATH descriptor
		}
		if err != nil {
			unix.Close(from)
		} else {
			err = copyDir(from, m.fd, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("option tmpcopyup: %w", err)
	}
	return nil
}

// copyDir copies what is in from, which it closes, to the directory to.
func copyDir(from, to, depth int) error {
	dir := os.NewFile(uintptr(from), "tmpcopyup")
	defer dir.Close()
	if depth > copyDepth {
		return errors.New("directories too deep")
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyEntry(from, to, name, depth); err != nil {
			return &os.PathError{Op: "copy", Path: name, Err: err}
		}
	}
	return nil
}

func copyEntry(from, to int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = copySub(from, to, name, depth)
	case unix.S_IFREG:
		err = copyFile(from, to, name)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		var n int
		if n, err = unix.Readlinkat(from, name, buf); err == nil {
			err = unix.Symlinkat(string(buf[:n]), to, name)
		}
	case unix.S_IFIFO:
		err = unix.Mknodat(to, name, unix.S_IFIFO|0o600, 0)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	// The owner first: a change of it clears the setuid bit.
	if err := unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// oneName resolves a single component that is no link and no mount.
const oneName = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func copySub(from, to int, name string, depth int) error {
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: oneName}
	out, err := unix.Openat2(to, name, how)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	in, err := unix.Openat2(from, name, how)
	if err != nil {
		return err
	}
	return copyDir(in, out, depth+1)
}

func copyFile(from, to int, name string) error {
	in, err := unix.Openat2(from, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: oneName})
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(in), name)
	defer src.Close()
	out, err := unix.Openat2(to, name, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC, Mode: 0o600, Resolve: oneName})
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(out), name)
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
