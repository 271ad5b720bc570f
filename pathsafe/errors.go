package pathsafe

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/fd"
)

// The conclusions that an *OpError can stand for. Each is tested with
// errors.Is; the errno is, too.
var (
	// ErrEscape: the path leaves its tree, by a symbolic link, a mount or "..".
	ErrEscape = errors.New("path leaves its tree")
	// ErrRaced: the tree changed during the call, which may be tried again.
	ErrRaced = errors.New("tree changed while in use")
	// ErrType: what is there is not the kind of file, owner or filesystem it
	// has to be.
	ErrType = errors.New("not the expected kind of file")
	// ErrGone: the directory, or the process, has been removed. One of the same
	// name that was made since is another one.
	ErrGone = errors.New("object was removed")
	// ErrTooBig: more data than the buffer or the limit allows.
	ErrTooBig = errors.New("content too big")
	// ErrTooMany: more entries than the limit allows.
	ErrTooMany = errors.New("too many entries")
	// ErrShortWrite: the kernel took a part of the data only.
	ErrShortWrite = errors.New("short write")
	// ErrPolicy: the tree's policy does not permit the operation. Nothing was
	// asked of the kernel.
	ErrPolicy = errors.New("operation not permitted on this kind of tree")
	// ErrMismatch: a value reads back other than it was written.
	ErrMismatch = errors.New("value reads back differently")
	// ErrUnsupported: the kernel, or a system call filter, lacks what pathsafe
	// is made of. There is no degraded mode.
	ErrUnsupported = errors.New("kernel feature missing")
	// ErrClosed: the Dir or File was closed. It is fs.ErrClosed.
	ErrClosed = fd.ErrClosed
)

// OpError is how every operation on a tree fails.
type OpError struct {
	Op    string     // the system call, or "check" for a refusal of our own
	Tree  string     // what the Dir was opened from, such as "cgroup /sys/fs/cgroup/cpu"
	Path  string     // relative to the tree; for messages only
	Errno unix.Errno // 0 if no system call failed

	kind   error  // one of the Err values above, or nil
	detail string // what was found instead
}

// Error gives one line. The path is quoted: it may come from a hostile source.
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	b.WriteString(" ")
	b.WriteString(strconv.Quote(e.Path))
	if e.Tree != "" {
		b.WriteString(" in ")
		b.WriteString(e.Tree)
	}
	b.WriteString(": ")
	switch {
	case e.Errno != 0 && e.kind != nil:
		b.WriteString(e.kind.Error() + ": " + e.Errno.Error())
	case e.Errno != 0:
		b.WriteString(e.Errno.Error())
	case e.kind != nil:
		b.WriteString(e.kind.Error())
	}
	if e.detail != "" {
		b.WriteString(" (" + e.detail + ")")
	}
	return b.String()
}

// Unwrap gives the errno, or the conclusion if no system call failed.
func (e *OpError) Unwrap() error {
	if e.Errno != 0 {
		return e.Errno
	}
	return e.kind
}

// Is reports whether target is the conclusion e stands for.
func (e *OpError) Is(target error) bool { return e.kind != nil && target == e.kind }

// ParseError says which part of a path or key is refused and why. No system
// call was made.
type ParseError struct {
	What  string // "path", "name", "path in root", "sysctl key", ...
	Input string
	Why   string
}

// Error quotes at most 64 bytes of the input.
func (e *ParseError) Error() string {
	in := e.Input
	if len(in) > 64 {
		in = in[:64] + "..."
	}
	return "parse " + e.What + " " + strconv.Quote(in) + ": " + e.Why
}

// Unwrap makes every ParseError an EINVAL.
func (e *ParseError) Unwrap() error { return unix.EINVAL }
