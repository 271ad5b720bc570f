package cgroups

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

// Check says how a written value is compared with what the file says then.
type Check uint8

// The checks.
const (
	// CheckNone: the file cannot be read, or does not show what was written.
	CheckNone Check = iota
	// CheckSame: the text is the same.
	CheckSame
	// CheckPages: a number of bytes that the kernel rounds down to whole pages.
	CheckPages
	// CheckList: a list of CPUs or nodes, which the kernel prints in its own way.
	CheckList
)

// Write is one value for one file.
type Write struct {
	// Field is what asked for it, below linux.resources.
	Field string
	// Controller is the version 1 controller; empty on version 2.
	Controller string
	File       string
	Value      string
	Check      Check
	// PageSize is the unit of CheckPages in bytes.
	PageSize uint64
	// Key selects the line to restore in a file of several, such as "8:16". What
	// to write if there was no such line is in Absent. With Bare the line is
	// restored without its key.
	Key    string
	Absent string
	Bare   bool
	// Saves is another file that the write changes, to be restored after it.
	Saves string
	// WriteOnly: the file cannot be read, so the write is not undone here.
	WriteOnly bool
	// Optional: the file may be missing. It is for limits whose absence is what
	// was asked for, such as no limit on swap on a host without swap accounting.
	Optional bool
}

// String is the form of the golden files.
func (w Write) String() string {
	s := w.File + " <- " + strings.ReplaceAll(w.Value, "\n", `\n`)
	if w.Optional {
		s += " (if there)"
	}
	return s
}

// Target is a directory for a Write.
type Target interface {
	// Dir gives the directory that w goes to; nil if the host has no such
	// controller.
	Dir(w Write) *pathsafe.Dir
	// Name is the group's path, for errors.
	Name() string
}

// Apply does the writes in order. If one of them fails, or reads back as
// something else, those before it are undone in reverse order: each step on the
// way back passes through a state that the kernel took before.
//
// A new group is not restored, because its maker removes it. Otherwise undo
// takes all of it back; it is there for what comes after the writes.
func Apply(t Target, writes []Write, fresh bool) (undo func() error, err error) {
	done := make([]Write, 0, len(writes))
	undo = func() error {
		var errs []error
		for i := len(done) - 1; i >= 0; i-- {
			errs = append(errs, write(t, done[i]))
		}
		done = nil
		return errors.Join(errs...)
	}
	if done, err = apply(t, writes, fresh, done); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// apply does the writes and adds to done what restores them.
func apply(t Target, writes []Write, fresh bool, done []Write) ([]Write, error) {
	buf := make([]byte, 4096)
	for _, w := range writes {
		if t.Dir(w) == nil {
			if w.Optional {
				continue
			}
			return done, Missing(w.Field, "cgroup controller "+w.Controller)
		}
		var old Write
		restorable := false
		if !fresh && !w.WriteOnly {
			var err error
			if old, restorable, err = previous(t, w, buf); err != nil {
				return done, err
			}
		}
		if !fresh && w.Saves != "" {
			also, ok, err := previous(t, Write{Field: w.Field, Controller: w.Controller, File: w.Saves}, buf)
			if err != nil {
				return done, err
			}
			if ok {
				done = append(done, also)
			}
		}
		if err := write(t, w); err != nil {
			if errors.Is(err, unix.ENOENT) && !errors.Is(err, ErrGone) {
				if w.Optional {
					continue
				}
				return done, Missing(w.Field, w.File)
			}
			return done, err
		}
		if restorable {
			done = append(done, old)
		}
		if err := verify(t, w, buf); err != nil {
			return done, err
		}
	}
	return done, nil
}

func write(t Target, w Write) error {
	name, err := pathsafe.ParseName(w.File)
	if err != nil {
		return Invalid(w.Field, err.Error())
	}
	if err := t.Dir(w).Write(name, []byte(w.Value)); err != nil {
		return fileError("write", t, w, err)
	}
	return nil
}

func fileError(op string, t Target, w Write, err error) error {
	if errors.Is(err, pathsafe.ErrGone) || errors.Is(err, unix.ENODEV) {
		err = errors.Join(ErrGone, err)
	}
	return &FileError{Op: op, Group: t.Name(), File: w.File, Value: w.Value, Err: err}
}

// previous makes the write that undoes w. ok is false for files that cannot be
// read, and for those that are not there.
func previous(t Target, w Write, buf []byte) (_ Write, ok bool, err error) {
	name, err := pathsafe.ParseName(w.File)
	if err != nil {
		return w, false, Invalid(w.Field, err.Error())
	}
	n, err := t.Dir(w).Read(name, buf)
	switch {
	case errors.Is(err, unix.ENOENT) && !errors.Is(err, pathsafe.ErrGone), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return w, false, nil
	case err != nil:
		return w, false, fileError("read", t, w, err)
	}
	old := w
	if w.Key == "" {
		old.Value = string(scan.Trim(buf[:n]))
		if old.Value == "" {
			old.Value = "\n" // a write of nothing does not reach the kernel's handler
		}
		return old, true, nil
	}
	old.Value = w.Absent
	for rest := buf[:n]; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		key, value := scan.Field(line)
		if string(key) != w.Key {
			continue
		}
		if w.Bare {
			line = value
		}
		old.Value = string(bytes.TrimSpace(line))
	}
	return old, old.Value != "", nil
}

// verify compares the file with what was written.
func verify(t Target, w Write, buf []byte) error {
	if w.Check == CheckNone {
		return nil
	}
	name, err := pathsafe.ParseName(w.File)
	if err != nil {
		return Invalid(w.Field, err.Error())
	}
	n, err := t.Dir(w).Read(name, buf)
	if err != nil {
		return fileError("read", t, w, err)
	}
	got := string(scan.Trim(buf[:n]))
	if !w.agrees(got) {
		return &ResourceError{
			Field: w.Field, Err: ErrInvalid,
			Text: "the kernel made " + quote(got) + " of " + quote(w.Value) + " in " + w.File,
		}
	}
	return nil
}

func quote(s string) string {
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return `"` + s + `"`
}

// agrees reports whether got is what the kernel should show after w.
func (w *Write) agrees(got string) bool {
	switch w.Check {
	case CheckSame:
		return got == w.Value
	case CheckPages:
		want, ok1 := scan.UintOrMax([]byte(w.Value))
		have, ok2 := scan.UintOrMax([]byte(got))
		if !ok1 || !ok2 {
			return got == w.Value
		}
		// More than half of the numbers there are is no limit on version 1, which
		// shows its own idea of infinity.
		if want > 1<<62 {
			return have > 1<<61
		}
		return have <= want && want-have < max(w.PageSize, 1)
	case CheckList:
		want, ok1 := ParseList(w.Value)
		have, ok2 := ParseList(got)
		return ok1 && ok2 && want.Equal(have)
	}
	return true
}
