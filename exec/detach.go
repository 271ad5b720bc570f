package exec

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// Detach are two FIFOs, each open for reading and writing: at Go the process
// waits for its pathname, on Status it reports a failure. They are closed when
// it executes its program.
type Detach struct{ Go, Status int }

// ReleaseDetached lets a process that waits at FIFOs execute path. goFD is open
// for writing, status for reading only and since before: its end of file is the
// success of execve, because the process was the last to have it open.
func ReleaseDetached(goFD int, status *os.File, path string) error {
	if len(path) >= releaseLen {
		return fmt.Errorf("execute %.64q...: %w", path, unix.ENAMETOOLONG)
	}
	var msg [releaseLen]byte
	copy(msg[:], path)
	// One write of PIPE_BUF bytes is never split (pipe(7)).
	if _, err := unix.Write(goFD, msg[:]); err != nil {
		return os.NewSyscallError("write", err)
	}
	var word [plan.FailureSize]byte
	n, err := io.ReadFull(status, word[:])
	if err == io.EOF {
		return nil
	}
	if err != nil {
		return fmt.Errorf("start process: read its report: %w", err)
	}
	f, ok := plan.ParseFailure(word[:n])
	if !ok {
		return errors.New("start process: its report makes no sense")
	}
	return &ExecveError{Path: path, Errno: unix.Errno(f.Errno)}
}

// ExecveError is a failure after the release of a process whose plan is gone
// with the program that made it. All that is left then is seccomp and execve.
type ExecveError struct {
	Path  string
	Errno unix.Errno
}

func (e *ExecveError) Error() string { return fmt.Sprintf("execute %q: %v", e.Path, e.Errno) }

// Unwrap lets errors.Is(err, unix.ENOENT) work.
func (e *ExecveError) Unwrap() error { return e.Errno }

// Adopt makes a Child of a process that is not one: it can be signalled and its
// namespaces joined. Its Done never closes. pidfd stays the caller's.
func Adopt(pid, pidfd int) *Child {
	return &Child{PID: pid, pidfd: pidfd, done: make(chan struct{})}
}
