package cgroups

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

// StatFile is one file of the statistics: where it is, and what its text fills.
// Either Parse or Number is set.
type StatFile struct {
	Controller string // of version 1
	Name       string
	Has        Has
	Parse      func(s *Stats, text []byte) error
	Number     func(s *Stats) *uint64 // for a file of one number, or "max"
}

// Reader holds the open files of a group's statistics. The zero value is ready.
// It is not for use by several goroutines at once.
type Reader struct {
	group string
	alive func() bool
	files []openFile
	buf   []byte
}

type openFile struct {
	StatFile
	f *pathsafe.File
}

// Opened reports whether Open has succeeded.
func (r *Reader) Opened() bool { return r.buf != nil }

// Len is the number of descriptors held.
func (r *Reader) Len() int { return len(r.files) }

// Close closes the files.
func (r *Reader) Close() {
	for i := range r.files {
		_ = r.files[i].f.Close()
	}
	*r = Reader{}
}

// Open opens the files of table that are there, and keeps them. group is for
// errors; dir gives the directory of a file, or nil if the host has no such
// controller.
func (r *Reader) Open(group string, table []StatFile, dir func(f StatFile) *pathsafe.Dir) error {
	r.group = group
	r.files = make([]openFile, 0, len(table))
	for _, f := range table {
		d := dir(f)
		if d == nil {
			continue
		}
		file, err := d.OpenRead(pathsafe.MustName(f.Name))
		if errors.Is(err, unix.ENOENT) && !errors.Is(err, pathsafe.ErrGone) {
			continue
		}
		if err != nil {
			err = r.fail("open", f.Name, err)
			r.Close()
			return err
		}
		r.files = append(r.files, openFile{f, file})
		r.alive = func() bool { return Alive(d) }
	}
	r.buf = make([]byte, 4096)
	return nil
}

// Alive reports whether the cgroup is still there.
func Alive(dir *pathsafe.Dir) bool {
	var one [1]byte
	_, err := dir.Read(procsFile, one[:])
	return !errors.Is(err, pathsafe.ErrGone)
}

func (r *Reader) fail(op, file string, err error) error {
	if errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENODEV) {
		err = errors.Join(ErrGone, err)
	}
	return &FileError{Op: op, Group: r.group, File: file, Err: err}
}

// Read reads every file into s.
func (r *Reader) Read(s *Stats) error {
	for i := 0; i < len(r.files); i++ {
		o := &r.files[i]
		n, err := r.pread(o.f)
		switch {
		case err == nil:
			if err := o.fill(s, r.buf[:n]); err != nil {
				return r.fail("parse", o.Name, err)
			}
		case errors.Is(err, unix.EOPNOTSUPP):
			// Pressure accounting is compiled in and off (psi=0), or swap is.
		case errors.Is(err, unix.ENODEV) && r.alive():
			// The file went and the group stayed: its controller was disabled, or
			// cgroup.pressure was.
			_ = o.f.Close()
			r.files = append(r.files[:i], r.files[i+1:]...)
			i--
		default:
			return r.fail("read", o.Name, err)
		}
	}
	return nil
}

// maxStatFile is far above the largest, io.stat of a host with thousands of
// disks.
const maxStatFile = 1 << 22

// pread reads a file that the kernel prints at once. All files of the statistics
// are such (single_open, by cgroup_seqfile_start in kernel/cgroup/cgroup.c), so
// a reading that does not fill the buffer is the whole file and needs no second
// pread, for which the kernel would make the text again. The buffer stays as
// large as the largest file has needed.
func (r *Reader) pread(f *pathsafe.File) (int, error) {
	for {
		n, err := unix.Pread(f.FD(), r.buf, 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n < len(r.buf) || n >= maxStatFile:
			return n, nil
		default:
			r.buf = make([]byte, 2*len(r.buf))
		}
	}
}

// fill puts the text of the file into s.
func (o *openFile) fill(s *Stats, text []byte) error {
	if o.Number == nil {
		if err := o.Parse(s, text); err != nil {
			return err
		}
	} else {
		v, ok := scan.UintOrMax(scan.Trim(text))
		if !ok {
			return fmt.Errorf("unexpected %.100q", text)
		}
		*o.Number(s) = v
	}
	s.Has |= o.Has
	return nil
}
