package main

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// wait waits for the end of a process and what it says last, and gives its exit
// code. Signals are passed on meanwhile.
func wait(p *container.Process, t *terminal) int {
	ch := make(chan os.Signal, 16)
	signal.Notify(ch)
	defer signal.Stop(ch)
	for {
		select {
		case s := <-ch:
			switch sig := s.(unix.Signal); sig {
			case unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG:
			case unix.SIGWINCH:
				t.resize()
			default:
				p.Kill(sig) //nolint:errcheck // it may have ended
			}
		case <-p.Done():
			t.restore()
			return int(p.ExitStatus().Code)
		}
	}
}

// lastOutput bounds the wait for the end of a terminal's output once its process
// has ended: others may still have it open.
const lastOutput = time.Second

// terminal is our own terminal, if we have one, connected with a process's. A nil
// one does nothing.
type terminal struct {
	p      *container.Process
	master *os.File
	saved  *unix.Termios // of our own
	done   chan struct{} // closed when all output was copied
	once   sync.Once
}

func attach(p *container.Process, master *os.File) (*terminal, error) {
	t := &terminal{p: p, master: master, done: make(chan struct{})}
	// Our own terminal turns a newline into two characters, where there is one.
	if err := clearONLCR(master); err != nil {
		return nil, err
	}
	if st, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		raw := *st // as cfmakeraw(3), and OPOST stays for what we print ourselves
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		if err := unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
			return nil, os.NewSyscallError("ioctl TCSETS", err)
		}
		t.saved = st
	}
	t.resize()
	go io.Copy(master, os.Stdin) //nolint:errcheck // it ends with us
	go func() {
		io.Copy(os.Stdout, master) //nolint:errcheck // EIO is the end, pty(7)
		close(t.done)
	}()
	return t, nil
}

// clearONLCR goes around File.Fd, which would take the file's deadlines away.
func clearONLCR(master *os.File) error {
	conn, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var ioErr error
	err = conn.Control(func(fd uintptr) {
		var st *unix.Termios
		if st, ioErr = unix.IoctlGetTermios(int(fd), unix.TCGETS); ioErr == nil {
			st.Oflag &^= unix.ONLCR
			ioErr = unix.IoctlSetTermios(int(fd), unix.TCSETS, st)
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("ioctl TCSETS", ioErr)
}

// resize gives the process's terminal the size of ours.
func (t *terminal) resize() {
	if t == nil {
		return
	}
	if w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		t.p.Resize(container.WinSize{Rows: w.Row, Cols: w.Col}) //nolint:errcheck // it may have ended
	}
}

// restore waits for the last output and gives our terminal back as it was.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.master.SetReadDeadline(time.Now().Add(lastOutput)) //nolint:errcheck // then the wait is bounded by the next line
		select {
		case <-t.done:
		case <-time.After(2 * lastOutput):
		}
		if t.saved != nil {
			unix.IoctlSetTermios(0, unix.TCSETS, t.saved) //nolint:errcheck // nothing can be done about it
		}
	})
}
