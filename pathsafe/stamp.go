package pathsafe

import "golang.org/x/sys/unix"

// Stamp tells one content of a file from another, as far as the file system
// does: it changes when the file is written or replaced.
type Stamp struct {
	dev, ino, size uint64
	mtime, ctime   unix.StatxTimestamp
}

// StampOf stats a file of the host's by its absolute path, without opening it.
// ENOENT is the usual error.
func StampOf(abs string) (Stamp, error) {
	c, err := absPath("file", abs)
	if err != nil {
		return Stamp{}, err
	}
	var st unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_CTIME
	if err := unix.Statx(unix.AT_FDCWD, c.String(), unix.AT_NO_AUTOMOUNT, mask, &st); err != nil {
		return Stamp{}, &OpError{Op: "statx", Tree: "host", Path: abs, Errno: errnoOf(err)}
	}
	return Stamp{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, st.Size, st.Mtime, st.Ctime}, nil
}
