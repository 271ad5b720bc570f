package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// openFlags go with every descriptor of a stream.
const openFlags = unix.O_NONBLOCK | unix.O_CLOEXEC

// readerWait is how long a start waits for the client to open a FIFO for
// reading. It does so on its own side of the start, and a process that is over
// before has nobody to tell that its output has ended. A variable for tests,
// which often have no client.
var readerWait = 5 * time.Second

// openSink opens where the output of a process goes. A FIFO is opened for
// reading, too, and keep holds that end: the process gets no SIGPIPE while
// containerd is down, and bytes wait for it in the kernel.
func openSink(ctx context.Context, path string) (dst int, keep []int, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return -1, nil, err
	}
	if st.Mode()&os.ModeNamedPipe == 0 {
		dst, err = unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return dst, nil, nil
	}
	// The writing end first: as long as nobody reads, and only then,
	// O_WRONLY|O_NONBLOCK is ENXIO (fifo(7)).
	w, err := openWriter(ctx, path)
	if err != nil {
		return -1, nil, err
	}
	r, err := unix.Open(path, unix.O_RDONLY|openFlags, 0)
	if err == nil && w < 0 { // nobody came; our own end makes up for it
		if w, err = unix.Open(path, unix.O_WRONLY|openFlags, 0); err != nil {
			unix.Close(r)
		}
	}
	if err != nil {
		if w >= 0 {
			unix.Close(w)
		}
		return -1, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return w, []int{r}, nil
}

// openWriter waits for a reader, which mostly is there. It gives up with -1.
func openWriter(ctx context.Context, path string) (int, error) {
	until := time.Now().Add(readerWait)
	for wait := lingerFirst / 4; ; wait = min(2*wait, 20*lingerFirst) {
		w, err := unix.Open(path, unix.O_WRONLY|openFlags, 0)
		switch {
		case err == nil:
			return w, nil
		case !errors.Is(err, unix.ENXIO):
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		case time.Now().After(until):
			return -1, nil
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return -1, fmt.Errorf("wait for a reader of %s: %w", path, ctx.Err())
		}
	}
}

// openLogFile opens the target of a file:// URL.
func openLogFile(path string) (int, error) {
	if !filepath.IsAbs(path) {
		return -1, fmt.Errorf("output file %q: not an absolute path: %w", path, errInvalid)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:forbidigo // the client of containerd, root, names the file
		return -1, err
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// openStdin opens a FIFO that a client writes input to. keep is a writing end
// of our own: the client may go away and come back, and the process sees the
// end of its input only after CloseIO has closed keep.
func openStdin(path string) (src, keep int, err error) {
	r, err := unix.Open(path, unix.O_RDONLY|openFlags, 0)
	if err != nil {
		return -1, -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if !isPipe(r) {
		unix.Close(r)
		return -1, -1, fmt.Errorf("stdin %s: not a FIFO: %w", path, errInvalid)
	}
	w, err := unix.Open(path, unix.O_WRONLY|openFlags, 0)
	if err != nil {
		unix.Close(r)
		return -1, -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return r, w, nil
}

const (
	lingerFirst = time.Millisecond
	lingerMost  = 200 * time.Millisecond
	lingerTotal = 10 * time.Second
	lingerEmpty = 3 * time.Second
)

// closeFIFO closes the writing end of a FIFO. If nobody has it open for
// reading, bytes that are left in it would be lost with the last descriptor,
// and even without any a client that opens it later would wait for a writer for
// ever (fifo(7)): a process may well be over before its client has come round
// to opening the FIFO. The end is kept until somebody has, for a while.
func closeFIFO(fd int) {
	if hasReader(fd) {
		unix.Close(fd)
		return
	}
	most := lingerEmpty
	if left, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && left > 0 {
		most = lingerTotal
	}
	linger(fd, lingerFirst, time.Now().Add(most))
}

func linger(fd int, wait time.Duration, until time.Time) {
	time.AfterFunc(wait, func() {
		if hasReader(fd) || time.Now().After(until) {
			unix.Close(fd)
			return
		}
		linger(fd, min(2*wait, lingerMost), until)
	})
}

// hasReader asks a writing end whether the other end is open somewhere:
// POLLERR means that it is not (poll(2)).
func hasReader(fd int) bool {
	for {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && p[0].Revents&unix.POLLERR == 0
	}
}
