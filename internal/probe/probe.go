package probe

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Feature is something that a kernel has or has not.
type Feature struct {
	Name         string
	Major, Minor int // the first version of the mainline kernel with it

	try     func() error
	verdict atomic.Uint32
}

// The verdicts that are kept. A result that is neither is not: it may have come
// from a lack of memory or of descriptors.
const (
	unknown = iota
	present
	absent     // ENOSYS, or EINVAL for a flag
	prohibited // EPERM: a filter, or a missing capability
)

// New declares a feature. try uses it and returns nil, or the errno that the
// kernel gave: ENOSYS, EINVAL, EOPNOTSUPP and EPERM mean that it cannot be used,
// anything else that try could not tell.
func New(name string, major, minor int, try func() error) *Feature {
	return &Feature{Name: name, Major: major, Minor: minor, try: try}
}

// MissingError says that a feature cannot be used.
type MissingError struct {
	Feature *Feature
	Errno   unix.Errno
}

// Error names the version that has the feature.
func (e *MissingError) Error() string {
	if e.Errno == unix.EPERM {
		return fmt.Sprintf("%s (refused: %v)", e.Feature.Name, e.Errno)
	}
	return fmt.Sprintf("%s (Linux %d.%d)", e.Feature.Name, e.Feature.Major, e.Feature.Minor)
}

// Unwrap gives the errno.
func (e *MissingError) Unwrap() error { return e.Errno }

// Check returns nil if the feature can be used, *MissingError if it cannot, and
// another error if that cannot be told at the moment. The first two are
// remembered.
func (f *Feature) Check() error {
	switch f.verdict.Load() {
	case present:
		return nil
	case absent:
		return &MissingError{f, unix.ENOSYS}
	case prohibited:
		return &MissingError{f, unix.EPERM}
	}
	err := f.try()
	var errno unix.Errno
	switch {
	case err == nil:
		f.verdict.Store(present)
		return nil
	case !errors.As(err, &errno):
	case errno == unix.ENOSYS, errno == unix.EINVAL, errno == unix.EOPNOTSUPP:
		f.verdict.Store(absent)
		return &MissingError{f, errno}
	case errno == unix.EPERM:
		f.verdict.Store(prohibited)
		return &MissingError{f, errno}
	}
	return fmt.Errorf("cannot tell whether the kernel has %s: %w", f.Name, err)
}

// Have reports whether the feature can be used.
func (f *Feature) Have() bool { return f.Check() == nil }
