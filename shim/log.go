package shim

import (
	"fmt"
	"io"
	"os"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// openLog sends the shim's log to the FIFO "log" of the bundle, which containerd
// reads. It is opened for both directions, so that writing neither waits for a
// reader nor fails without one, and without blocking: when nobody reads, lines
// are dropped. Standard error goes there as well, for the sake of a crash.
func openLog(path string, debug bool) error {
	if debug {
		log.SetLevel("debug") //nolint:errcheck // the level exists
	}
	fd, err := unix.Open(path, unix.O_RDWR|openFlags, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if !isPipe(fd) {
		unix.Close(fd)
		return fmt.Errorf("%s: not a FIFO", path)
	}
	if err := unix.Dup3(fd, 2, 0); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("dup3", err)
	}
	log.L.Logger.SetOutput(dropWriter(fd))
	return nil
}

// dropWriter writes to a descriptor and forgets what does not fit.
type dropWriter int

func (w dropWriter) Write(b []byte) (int, error) {
	unix.Write(int(w), b) //nolint:errcheck // a log that cannot be written is lost
	return len(b), nil
}

var _ io.Writer = dropWriter(0)
