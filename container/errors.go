package container

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
)

// What errors of this package mean; test with errors.Is.
var (
	// ErrNotFound: no such process, or it has ended.
	ErrNotFound = errors.New("not found")
	// ErrExists: the ID is taken.
	ErrExists = errors.New("already exists")
	// ErrUnsupported: a field of the configuration that is not there yet.
	ErrUnsupported = rootfs.ErrUnsupported
	// ErrInvalid: the configuration or an argument is wrong.
	ErrInvalid = errors.New("invalid")
	// ErrState: not possible in the present state; the error is a *StateError.
	ErrState = errors.New("wrong state")
)

// errEnded has the words that callers look for (containerd, moby).
var errEnded = fmt.Errorf("process already finished: %w", ErrNotFound)

// StateError says that Op is not possible in a state.
type StateError struct {
	Op     string
	Status Status
}

func (e *StateError) Error() string { return fmt.Sprintf("cannot %s a %s process", e.Op, e.Status) }

// Is makes errors.Is(err, ErrState) true.
func (e *StateError) Is(target error) bool { return target == ErrState }

func (s Status) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Paused:
		return "paused"
	}
	return "stopped"
}

// IsCommandNotFound reports whether err says that the program of a process is not
// there; a shell ends with 127 then.
func IsCommandNotFound(err error) bool {
	var l *exec.LookupError
	return errors.As(err, &l) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR))
}

// IsCommandRefused reports whether err says that the program of a process is
// there and cannot be executed; a shell ends with 126 then.
func IsCommandRefused(err error) bool {
	var l *exec.LookupError
	return errors.As(err, &l) && !IsCommandNotFound(err)
}

// invalid makes an error about one field.
func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", field, fmt.Sprintf(format, args...), ErrInvalid)
}

func unsupported(field string) error { return fmt.Errorf("%s: %w", field, ErrUnsupported) }
