package security

import (
	"os"

	"golang.org/x/sys/unix"
)

// dupInheritable duplicates f as a descriptor that survives execve.
func dupInheritable(f *os.File) (func(), error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 50)
	return func() { unix.Close(fd) }, err
}

func truncate(path string, size int64) error { return os.Truncate(path, size) }
