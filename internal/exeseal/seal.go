// Package exeseal lets a program run from a file that nobody can change.
package exeseal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A program that starts containers must not run from the installed file. What
// will be a container's process is a copy of it until execve, and a program of
// the container that says "#!/proc/self/exe" is executed by it. Who gets hold of
// that /proc/PID/exe could open the file for writing once the last process that
// runs it has ended (CVE-2019-5736).
//
// So it runs from the same file on a read-only overlay of its own, which has no
// upper layer to write to and is nowhere mounted. It shares the pages of the
// installed file. A read-only bind mount would not do: whoever has CAP_SYS_ADMIN
// over it can make it writable again. Where the overlay cannot be made, a sealed
// copy in memory serves, at the price of its size for each program.

// fdMin keeps the program's descriptor clear of those that it gets by number.
const fdMin = 16

// File is what the program is executed from.
type File struct {
	fd  int
	how string
}

// Path is valid in this process, and in a child up to its execve.
func (s File) Path() string { return fmt.Sprintf("/proc/self/fd/%d", s.fd) }

// Close closes the descriptor; whoever executes the file keeps it.
func (s File) Close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
	}
}

// Open opens the program at path in a way through which nobody can change it.
// scratch is a directory in which an empty one may be made for a moment.
func Open(path, scratch string) (File, error) {
	fd, err := sealOverlay(path, scratch)
	if err == nil {
		return keepHigh(fd, "overlay")
	}
	fd, merr := sealMemory(path)
	if merr == nil {
		return keepHigh(fd, "memory")
	}
	return File{fd: -1}, errors.Join(err, merr)
}

func keepHigh(fd int, how string) (File, error) {
	defer unix.Close(fd)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, fdMin)
	if err != nil {
		return File{fd: -1}, os.NewSyscallError("fcntl", err)
	}
	return File{high, how}, nil
}

// sealOverlay opens the file on an overlay that consists of its directory and an
// empty one: without an upper layer there have to be two - overlayfs.rst,
// "Multiple lower layers".
func sealOverlay(path, scratch string) (_ int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a read-only overlay of %s: %w", path, err)
		}
	}()
	dir, name := filepath.Split(path)
	if strings.ContainsAny(dir, `:\,`) {
		return -1, errors.New("its path has a character that separates options")
	}
	empty, err := os.MkdirTemp(scratch, "ibex-seal-")
	if err != nil {
		return -1, err
	}
	// A layer is held by its inode: it may go once it is part of the overlay.
	defer os.Remove(empty) //nolint:errcheck // it is empty, and goes with the bundle otherwise
	if empty, err = filepath.Abs(empty); err != nil {
		return -1, err
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	// Read-only as a whole: the mount alone could be changed by its owner.
	if err := unix.FsconfigSetFlag(fs, "ro"); err != nil {
		return -1, os.NewSyscallError("fsconfig ro", err)
	}
	if err := unix.FsconfigSetString(fs, "lowerdir", filepath.Clean(dir)+":"+empty); err != nil {
		return -1, os.NewSyscallError("fsconfig lowerdir", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, os.NewSyscallError("fsconfig create", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return -1, os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(mnt)
	fd, err := unix.Openat(mnt, name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return fd, os.NewSyscallError("openat", err)
}

// Flags and seals of newer kernels (Linux 6.3, commits 105ff5339f49 and
// 6fd7353829ca). Where vm.memfd_noexec is set, only what asks for it may be
// executed.
const (
	mfdExec  = 0x10
	sealExec = 0x20
)

// sealMemory copies the file to memory and seals the copy.
func sealMemory(path string) (_ int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make a sealed copy of %s: %w", path, err)
		}
	}()
	src, err := os.Open(path)
	if err != nil {
		return -1, err
	}
	defer src.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | sealExec
	fd, err := unix.MemfdCreate(filepath.Base(path), flags|mfdExec)
	if errors.Is(err, unix.EINVAL) {
		seals &^= sealExec
		fd, err = unix.MemfdCreate(filepath.Base(path), flags)
	}
	if err != nil {
		return -1, os.NewSyscallError("memfd_create", err)
	}
	dst := os.NewFile(uintptr(fd), "sealed copy")
	defer dst.Close()
	if _, err := io.Copy(dst, src); err != nil {
		return -1, err
	}
	if err := dst.Chmod(0o500); err != nil {
		return -1, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return -1, os.NewSyscallError("fcntl(F_ADD_SEALS)", err)
	}
	out, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, fdMin)
	return out, os.NewSyscallError("fcntl", err)
}

// SetName gives the process the name of its program: it was started through a
// descriptor, whose number the kernel took for the name.
func SetName() error {
	f, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(filepath.Base(os.Args[0]))
	return errors.Join(err, f.Close())
}
