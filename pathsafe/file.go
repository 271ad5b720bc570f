package pathsafe

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/fd"
)

// File is an open file. Like a Dir it may be used from several goroutines, also
// during Close, and has no finalizer.
type File struct {
	fd     fd.FD
	policy Policy
	tree   string // for messages only, as are at and name
	at     string // of the directory
	name   string
}

func newFile(raw int, policy Policy, tree, at, name string) *File {
	f := &File{policy: policy, tree: tree, at: at, name: name}
	f.fd.Init(raw)
	return f
}

// FD returns the descriptor, which stays f's: it is valid until Close, and -1
// afterwards.
func (f *File) FD() int { return f.fd.Int() }

// Disown gives the descriptor to the caller and closes f. It is -1 if f was
// closed.
func (f *File) Disown() int { return f.fd.Disown() }

// Close closes the file once the calls under way have ended. Closing again does
// nothing.
func (f *File) Close() error { return f.fd.Close() }

// String describes the file, for messages.
func (f *File) String() string { return f.path() + " in " + f.tree }

func (f *File) path() string {
	if f.at == "" {
		return f.name
	}
	return f.at + "/" + f.name
}

func (f *File) fail(op string, errno unix.Errno) error {
	e := &OpError{Op: op, Tree: f.tree, Path: f.path(), Errno: errno}
	// A removed cgroup answers ENODEV to a descriptor that was opened before.
	// A process that is gone answers ESRCH to one in its procfs directory.
	if f.policy == PolicyKernfs && errno == unix.ENODEV || f.policy == PolicyProc && errno == unix.ESRCH {
		e.kind = ErrGone
	}
	return e
}

func (f *File) refuse(kind error) error {
	return &OpError{Op: "check", Tree: f.tree, Path: f.path(), kind: kind}
}

// wholeRead is the size below which one pread of a cgroup file is all of it.
// seq_read_iter (fs/seq_file.c) returns less than was asked for only when the
// next record does not fit into its buffer of at least a page. The cgroup files
// of many records (cgroup.procs, tasks, cgroup.threads) have short ones.
const wholeRead = 2048

// ReadAt0 reads the file from its beginning to its end into buf and returns the
// number of bytes. ErrTooBig means that there is more than len(buf). It does
// not allocate, and costs one pread(2) for the content of most cgroup files.
func (f *File) ReadAt0(buf []byte) (int, error) {
	raw, ok := f.fd.Acquire()
	if !ok {
		return 0, f.refuse(ErrClosed)
	}
	n, errno := preadAll(raw, buf, f.policy == PolicyKernfs)
	f.fd.Release()
	switch {
	case errno != 0:
		return n, f.fail("pread", errno)
	case n > len(buf):
		return len(buf), f.refuse(ErrTooBig)
	}
	return n, nil
}

// preadAll reads to the end of the file. It returns len(buf)+1 if that does not
// fit. short permits to believe a short read; see wholeRead.
func preadAll(raw int, buf []byte, short bool) (int, unix.Errno) {
	n := 0
	for n < len(buf) {
		m, err := unix.Pread(raw, buf[n:], int64(n))
		if err != nil {
			if errno := errnoOf(err); errno != unix.EINTR {
				return n, errno
			}
			continue
		}
		if m == 0 {
			return n, 0
		}
		n += m
		if short && n < wholeRead && n < len(buf) {
			return n, 0
		}
	}
	var one [1]byte
	for {
		m, err := unix.Pread(raw, one[:], int64(n))
		if errno := errnoOf(err); errno == unix.EINTR {
			continue
		} else if errno != 0 {
			return n, errno
		}
		return n + m, 0
	}
}

// readAll reads a file of unknown size, at most limit bytes.
func (f *File) readAll(limit int) ([]byte, error) {
	for size := 4096; ; size *= 4 {
		size = min(size, limit)
		buf := make([]byte, size)
		n, err := f.ReadAt0(buf)
		if err == nil {
			return buf[:n], nil
		}
		if !errors.Is(err, ErrTooBig) || size == limit {
			return nil, err
		}
	}
}

// Write gives data to the kernel in exactly one write(2): a control file acts on
// each write by itself. ErrShortWrite means that it took the beginning only.
func (f *File) Write(data []byte) (int, error) {
	raw, ok := f.fd.Acquire()
	if !ok {
		return 0, f.refuse(ErrClosed)
	}
	n, errno := writeOnce(raw, data)
	f.fd.Release()
	switch {
	case errno != 0:
		return n, f.fail("write", errno)
	case n < len(data):
		return n, f.refuse(ErrShortWrite)
	}
	return n, nil
}

func writeOnce(raw int, data []byte) (int, unix.Errno) {
	for {
		n, err := unix.Write(raw, data)
		if err == nil {
			return n, 0
		}
		if errno := errnoOf(err); errno != unix.EINTR {
			return 0, errno
		}
	}
}
