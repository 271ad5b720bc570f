package rootfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PTY is a pseudo terminal: Master for the caller, Replica for the process.
type PTY struct {
	Master  *os.File
	Replica int
	Number  int // its name in the instance
}

// OpenPTY allocates a terminal in the given devpts instance, one that we
// mounted ourselves and nobody can have replaced (CVE-2025-52565); -1 takes the
// host's.
//
// TIOCGPTPEER: Linux 4.13; it opens the other end without any path.
func OpenPTY(devpts int) (*PTY, error) {
	dir, name := devpts, "ptmx"
	how := unix.OpenHow{
		Flags:   unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH,
	}
	if devpts < 0 {
		dir, name = unix.AT_FDCWD, "/dev/pts/ptmx"
		how.Resolve = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	}
	fd, err := unix.Openat2(dir, name, &how)
	if err != nil && devpts < 0 {
		fd, err = unix.Openat2(dir, "/dev/ptmx", &how)
	}
	if err != nil {
		return nil, fmt.Errorf("allocate a terminal: %w", &os.PathError{Op: "openat2", Path: name, Err: err})
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(5, 2) {
		unix.Close(fd)
		return nil, fmt.Errorf("allocate a terminal: %s is not the pty multiplexer (5:2)", name)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		unix.Close(fd)
		return nil, os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		unix.Close(fd)
		unix.Close(int(peer))
		return nil, os.NewSyscallError("ioctl TIOCGPTN", err)
	}
	return &PTY{Master: os.NewFile(uintptr(fd), "ptmx"), Replica: int(peer), Number: int(n)}, nil
}

// OpenDevpts opens the devpts instance at /dev/pts below root, the root of a
// container; -1 if there is none. Whoever mounts another one there gets terminals
// from that: it is the container's own either way.
func OpenDevpts(root int) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH}
	fd, err := unix.Openat2(root, "dev/pts", &how)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return -1, nil
	default:
		return -1, &os.PathError{Op: "openat2", Path: "/dev/pts", Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.DEVPTS_SUPER_MAGIC {
		unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}
