package cgroups

import (
	"errors"
	"strconv"

	"github.com/ibex-run/ibex/pathsafe"
)

var (
	// ErrBusy is answered for a cgroup that is not ours to take: it has
	// processes, or it is frozen.
	ErrBusy = errors.New("cgroup is in use")
	// ErrGone is answered by readings and settings of a cgroup that was removed.
	ErrGone = errors.New("cgroup is gone")
	// ErrNotFound is answered by Open if no hierarchy has the cgroup.
	ErrNotFound = errors.New("no such cgroup")
	// ErrNoController is answered for a limit whose controller, or whose file of
	// a controller, this host does not have.
	ErrNoController = errors.New("no such cgroup controller")
	// ErrInvalid is answered for a value that no kernel would take.
	ErrInvalid = errors.New("invalid resource")
	// ErrSystemd is answered for a path of the form slice:prefix:name on a host
	// that is not run by systemd, or has cgroup v1.
	ErrSystemd = errors.New("cgroupsPath names a systemd slice, and this host has no systemd with cgroup v2")
)

// FileError reports a cgroup file that could not be read or written, or that
// has other contents than it should.
type FileError struct {
	Op    string // "read", "write", "parse" or "verify"
	Group string // below the hierarchy
	File  string
	Value string // what was written, if anything
	Err   error
}

// Error gives one line: what was done, to which file, what came back.
func (e *FileError) Error() string {
	s := e.Op + " " + e.File
	if e.Value != "" {
		s += " " + strconv.Quote(e.Value)
	}
	// What the system call was and where is said already.
	text := e.Err.Error()
	if op, ok := errors.AsType[*pathsafe.OpError](e.Err); ok && op.Errno != 0 {
		text = op.Errno.Error()
	}
	if errors.Is(e.Err, ErrGone) {
		text = ErrGone.Error() + ": " + text
	}
	return s + " of cgroup " + e.Group + ": " + text
}

// Unwrap lets errors.Is find the errno.
func (e *FileError) Unwrap() error { return e.Err }

// ResourceError reports a field of linux.resources that cannot be honoured.
type ResourceError struct {
	Field string // such as "memory.limit"
	Err   error
	Text  string // in words, may be empty
}

// Error names the field.
func (e *ResourceError) Error() string {
	if e.Text == "" {
		return "linux.resources." + e.Field + ": " + e.Err.Error()
	}
	return "linux.resources." + e.Field + ": " + e.Text
}

// Unwrap gives the sentinel: ErrInvalid or ErrNoController.
func (e *ResourceError) Unwrap() error { return e.Err }

// Invalid makes the error for a value that no kernel would take.
func Invalid(field, text string) error {
	return &ResourceError{Field: field, Err: ErrInvalid, Text: text}
}

// Missing makes the error for a field that needs a controller, or a file, that
// this host does not have.
func Missing(field, what string) error {
	return &ResourceError{Field: field, Err: ErrNoController, Text: "this host has no " + what}
}
