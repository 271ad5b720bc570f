package shim

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// drainTimeout bounds how long a Delete waits for a slow reader of the last
// output.
const drainTimeout = 10 * time.Second

// ioSpec is what a client asked for: paths of FIFOs, file:// or binary:// URLs,
// or nothing.
type ioSpec struct {
	stdin, stdout, stderr string
	terminal              bool
}

// ioOwner is who must be able to open the ends that the process gets.
type ioOwner struct{ uid, gid uint32 }

// processIO is the input and output of one process.
type processIO struct {
	poll *poller
	spec ioSpec

	// child holds the ends for the process; the shim's copies are closed when
	// the process has started.
	child container.Stdio
	log   *logger
	over  *overflow // nil: output that nobody reads blocks the process

	mu        sync.Mutex
	in        *stream   // guarded by mu
	out       []*stream // guarded by mu
	tty       sink      // guarded by mu: where the console's output will go
	ttyIn     int       // guarded by mu: where its input comes from, or -1
	stdinKeep int       // guarded by mu: see openStdin; -1 when closed
	gone      bool      // guarded by mu
}

// sink is an opened target of output.
type sink struct {
	fd   int
	keep []int
}

func (s sink) close() {
	for _, fd := range append(s.keep, s.fd) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// openIO opens everything that spec names. Nothing is copied before started.
func openIO(ctx context.Context, poll *poller, spec ioSpec, owner ioOwner, id logID) (_ *processIO, err error) {
	p := &processIO{poll: poll, spec: spec, ttyIn: -1, stdinKeep: -1, tty: sink{fd: -1}}
	defer func() {
		if err != nil {
			p.abort()
		}
	}()
	scheme := ""
	if u, ok := strings.CutPrefix(spec.stdout, "binary"); ok && (strings.HasPrefix(u, "://") || strings.HasPrefix(u, "-v2://")) {
		scheme = "binary"
	}
	if err := p.openInput(owner); err != nil {
		return nil, err
	}
	switch {
	case scheme == "binary":
		return p, p.openBinary(owner, id)
	case spec.terminal:
		if spec.stdout != "" {
			p.tty, err = openTarget(ctx, spec.stdout)
		}
		return p, err
	}
	if p.child.Stdout, err = p.openOutput(ctx, spec.stdout, "stdout", owner); err != nil {
		return nil, err
	}
	if p.child.Stderr, err = p.openOutput(ctx, spec.stderr, "stderr", owner); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *processIO) openInput(owner ioOwner) error {
	if p.spec.stdin == "" {
		return nil
	}
	src, keep, err := openStdin(p.spec.stdin)
	if err != nil {
		return fmt.Errorf("open stdin: %w", err)
	}
	p.stdinKeep = keep
	if p.spec.terminal {
		p.ttyIn = src
		return nil
	}
	child, w, err := pipeFor(owner, "stdin", true)
	if err != nil {
		unix.Close(src)
		return err
	}
	p.child.Stdin = child
	p.in = newStream(p.poll, src, w)
	return nil
}

// openOutput makes a pipe for the process and a stream from it to the target.
func (p *processIO) openOutput(ctx context.Context, target, name string, owner ioOwner) (*os.File, error) {
	if target == "" {
		return nil, nil
	}
	t, err := openTarget(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	child, r, err := pipeFor(owner, name, false)
	if err != nil {
		t.close()
		return nil, err
	}
	p.out = append(p.out, newStream(p.poll, r, t.fd, t.keep...))
	return child, nil
}

// openTarget opens a path or URL that output goes to.
func openTarget(ctx context.Context, target string) (sink, error) {
	scheme, _, ok := strings.Cut(target, "://")
	if !ok {
		fd, keep, err := openSink(ctx, target)
		return sink{fd, keep}, err
	}
	u, err := url.Parse(target)
	if err != nil {
		return sink{fd: -1}, fmt.Errorf("output %q: %w: %w", target, err, errInvalid)
	}
	switch scheme {
	case "fifo":
		fd, keep, err := openSink(ctx, u.Path)
		return sink{fd, keep}, err
	case "file":
		fd, err := openLogFile(u.Path)
		return sink{fd: fd}, err
	}
	return sink{fd: -1}, fmt.Errorf("output %q: scheme %s is not known: %w", target, scheme, errInvalid)
}

// pipeFor makes a pipe. The process's end blocks, as programs expect of their
// standard descriptors; ours does not.
func pipeFor(owner ioOwner, name string, childReads bool) (child *os.File, ours int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	childFD, ours := fds[1], fds[0]
	if childReads {
		childFD, ours = fds[0], fds[1]
	}
	err = unix.SetNonblock(ours, true)
	if err == nil && (owner != ioOwner{}) {
		err = unix.Fchown(childFD, int(owner.uid), int(owner.gid))
	}
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, -1, fmt.Errorf("prepare pipe for %s: %w", name, err)
	}
	return os.NewFile(uintptr(childFD), name), ours, nil
}

// closeChild closes the shim's copies of what the process got.
func (p *processIO) closeChild() {
	for _, f := range []*os.File{p.child.Stdin, p.child.Stdout, p.child.Stderr} {
		if f != nil {
			f.Close()
		}
	}
	p.child = container.Stdio{}
}

// started begins to copy. console is the master of the process's terminal, nil
// without one.
func (p *processIO) started(console *os.File) error {
	p.closeChild()
	p.mu.Lock()
	defer p.mu.Unlock()
	if console != nil {
		if err := p.attachLocked(console); err != nil {
			return err
		}
	}
	if p.in != nil {
		p.in.start()
	}
	p.spoolOutput()
	for _, s := range p.out {
		s.start()
	}
	return nil
}

// attachLocked connects a terminal. Its master stays the container's.
func (p *processIO) attachLocked(console *os.File) error {
	conn, err := console.SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	if cerr := conn.Control(func(n uintptr) {
		fd = int(n)
		err = unix.SetNonblock(fd, true)
	}); cerr != nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("prepare terminal: %w", err)
	}
	p.out = append(p.out, newConsoleOutput(p.poll, conn, fd, p.tty.fd, p.tty.keep...))
	p.tty = sink{fd: -1}
	if p.ttyIn >= 0 {
		p.in = newConsoleInput(p.poll, conn, p.ttyIn, fd)
		p.ttyIn = -1
	}
	return nil
}

func dupNonblock(f *os.File) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := conn.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = cerr
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return fd, nil
}

// closeStdin lets the process see the end of its input once everything that
// clients wrote has been read and the last of them has closed its end.
func (p *processIO) closeStdin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeStdinLocked()
}

func (p *processIO) closeStdinLocked() {
	if p.stdinKeep >= 0 {
		unix.Close(p.stdinKeep)
		p.stdinKeep = -1
	}
}

// exited stops the input: nobody reads it any more.
func (p *processIO) exited() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exitedLocked()
}

func (p *processIO) exitedLocked() {
	p.closeStdinLocked()
	if p.in != nil {
		p.in.close()
		p.in = nil
	}
}

// finish delivers the last output and ends everything, after the process has
// ended.
func (p *processIO) finish() {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return
	}
	p.gone = true
	p.exitedLocked()
	out := p.out
	p.mu.Unlock()

	var wg sync.WaitGroup
	for _, s := range out {
		wg.Go(func() {
			s.drain(drainTimeout)
			if p.spec.terminal {
				s.close() // hangs up what still uses the terminal
			}
		})
	}
	wg.Wait()
	if p.log != nil {
		p.log.close()
	}
}

// abort gives up on a process that never ran.
func (p *processIO) abort() {
	p.closeChild()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	p.gone = true
	p.exitedLocked()
	for _, s := range p.out {
		s.close()
	}
	p.tty.close()
	if p.ttyIn >= 0 {
		unix.Close(p.ttyIn)
	}
	if p.log != nil {
		p.log.close()
	}
}
