package exeseal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// marker tells the program that it was executed by Reexec.
const marker = "IBEX_SEALED"

// Reexec executes this program again, from a file that nobody can change, unless
// it runs from one already. It does not return then. It comes before anything
// was opened or started; scratch is as for Open.
func Reexec(scratch string) error {
	again := os.Getenv(marker) != ""
	if err := os.Unsetenv(marker); err != nil {
		return err
	}
	sealed, err := isSealed()
	switch {
	case err != nil:
		return fmt.Errorf("look at the running program: %w", err)
	case sealed && again:
		return SetName()
	case sealed:
		return nil
	case again:
		return errors.New("the running program is not sealed, though it was executed to be")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := Open(self, scratch)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Exec(f.Path(), os.Args, append(os.Environ(), marker+"=1"))
	return fmt.Errorf("execute the sealed program: %w", os.NewSyscallError("execve", err))
}

// isSealed tells whether the file that this program runs from takes no writes. A
// running program takes none anyway: that is ETXTBSY, and over with the program.
// A file system that is read-only as a whole says so first.
func isSealed() (bool, error) {
	fd, err := unix.Open("/proc/self/exe", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return false, nil
	}
	if errors.Is(err, unix.EROFS) {
		return true, nil
	}
	if fd, err = unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return false, os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_WRITE != 0, nil // EINVAL: not a memfd
}
