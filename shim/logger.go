package shim

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

const (
	// loggerReady is how long a log driver may take to say that it is ready.
	loggerReady = 10 * time.Second
	// loggerEnd is how long it may take to end by itself once its input ended;
	// loggerTerm how long after SIGTERM.
	loggerEnd  = 2 * time.Second
	loggerTerm = 10 * time.Second
)

// logID is what a log driver is told about the container.
type logID struct{ id, namespace string }

// logger is a log driver of a binary:// or binary-v2:// URL: a program that
// reads the output of a process from its descriptors 3 and 4 and closes its
// descriptor 5 when it is ready. With binary-v2 it writes a byte first, which
// tells readiness from death.
type logger struct{ prog *logProgram }

// logProgram is a running log driver.
type logProgram struct {
	signal func(os.Signal) error
	done   chan struct{}
	err    error // valid after done
}

// openBinary starts the log driver that spec.stdout names and connects the
// process to it.
func (p *processIO) openBinary(owner ioOwner, id logID) error {
	u, err := url.Parse(p.spec.stdout)
	if err != nil {
		return fmt.Errorf("output %q: %w: %w", p.spec.stdout, err, errInvalid)
	}
	if err := checkLogger(u); err != nil {
		return fmt.Errorf("output %q: %w: %w", p.spec.stdout, err, errInvalid)
	}
	// The logger's ends block, the other end's mode is the process's or ours.
	var r, w [2]*os.File
	defer func() { closeFiles(r[:]); closeFiles(w[:]) }()
	for i, name := range []string{"stdout", "stderr"} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			return os.NewSyscallError("pipe2", err)
		}
		r[i], w[i] = os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
		if (owner != ioOwner{}) {
			if err := unix.Fchown(fds[1], int(owner.uid), int(owner.gid)); err != nil {
				return os.NewSyscallError("fchown", err)
			}
		}
	}
	if p.log, err = startLogger(u, id, r[0], r[1]); err != nil {
		return err
	}
	if p.spec.terminal {
		fd, err := dupNonblock(w[0])
		if err != nil {
			return err
		}
		p.tty = sink{fd: fd} // a terminal has no stderr: the logger's ends at once
		return nil
	}
	p.child.Stdout, p.child.Stderr = w[0], w[1]
	w = [2]*os.File{}
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// checkLogger refuses a log driver that others than root may have put there: it
// runs as root on the host. A name from an image once got there (CVE-2026-53488).
func checkLogger(u *url.URL) error {
	if u.Host != "" || !filepath.IsAbs(u.Path) || filepath.Clean(u.Path) != u.Path {
		return errors.New("not the absolute path of a program, without .. and the like")
	}
	var st unix.Stat_t
	if err := unix.Stat(u.Path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: u.Path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%s is not a regular file", u.Path)
	case st.Uid != 0 || st.Mode&0o022 != 0:
		return fmt.Errorf("%s may be changed by others than root", u.Path)
	}
	return nil
}

// startLogger runs the program and waits until it is ready.
func startLogger(u *url.URL, id logID, stdout, stderr *os.File) (*logger, error) {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	prog, err := startLogProgram(u.Path, loggerArgs(u.RawQuery),
		[]string{"CONTAINER_ID=" + id.id, "CONTAINER_NAMESPACE=" + id.namespace},
		[]*os.File{stdout, stderr, theirs})
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start log driver: %w", err)
	}
	l := &logger{prog: prog}
	if err := ready.SetReadDeadline(time.Now().Add(loggerReady)); err != nil {
		l.kill()
		return nil, err
	}
	var b [1]byte
	n, err := ready.Read(b[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.kill()
		return nil, fmt.Errorf("log driver %s: not ready after %v", u.Path, loggerReady)
	case n == 0 && u.Scheme == "binary-v2":
		l.kill()
		return nil, fmt.Errorf("log driver %s: ended before it was ready", u.Path)
	}
	return l, nil
}

// loggerArgs turns a query into arguments, in the order in which it was
// written: each key, then its value.
func loggerArgs(query string) []string {
	if query == "" {
		return nil
	}
	var args []string
	for kv := range strings.SplitSeq(query, "&") {
		k, v, _ := strings.Cut(kv, "=")
		for _, s := range []string{k, v} {
			if t, err := url.QueryUnescape(s); err == nil {
				s = t
			}
			args = append(args, s)
		}
	}
	return args
}

func (l *logger) kill() {
	l.prog.signal(os.Kill) //nolint:errcheck // ended already
	<-l.prog.done
}

// close waits for the log driver, whose input has ended. One that does not end
// with it is told to, and killed if it does not listen.
func (l *logger) close() {
	for _, step := range []struct {
		wait time.Duration
		sig  os.Signal
	}{{loggerEnd, syscall.SIGTERM}, {loggerTerm, os.Kill}} {
		t := time.NewTimer(step.wait)
		select {
		case <-l.prog.done:
			t.Stop()
			if l.prog.err != nil && !errors.Is(l.prog.err, syscall.ECHILD) {
				log.L.WithError(l.prog.err).Warn("log driver ended")
			}
			return
		case <-t.C:
			l.prog.signal(step.sig) //nolint:errcheck // ended already
		}
	}
	<-l.prog.done
}
