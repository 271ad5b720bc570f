package shim

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// testConsole connects a terminal in raw mode: in is what the client types, out
// what it sees.
func testConsole(t *testing.T) (p *processIO, master, replica, in, out *os.File) {
	t.Helper()
	master, replica = testPTY(t)
	t.Cleanup(func() { replica.Close() })
	tio, err := unix.IoctlGetTermios(int(replica.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	tio.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
	tio.Iflag &^= unix.ICRNL | unix.IXON
	tio.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(replica.Fd()), unix.TCSETS, tio); err != nil {
		t.Fatal(err)
	}
	var ins, outs [2]int
	for _, fds := range []*[2]int{&ins, &outs} {
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	for _, fd := range []int{ins[0], outs[1]} {
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	in, out = os.NewFile(uintptr(ins[1]), "in"), os.NewFile(uintptr(outs[0]), "out")
	t.Cleanup(func() { in.Close(); out.Close() })
	p = &processIO{poll: testPoller(t), spec: ioSpec{terminal: true}, ttyIn: ins[0], stdinKeep: -1, tty: sink{fd: outs[1]}}
	t.Cleanup(p.finish)
	if err := p.started(master); err != nil {
		t.Fatal(err)
	}
	return p, master, replica, in, out
}

func consoles(t *testing.T) int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "/dev/ptmx" {
			n++
		}
	}
	return n
}

func TestATerminalIsOneDescriptorOfTheShim(t *testing.T) {
	_, _, replica, in, out := testConsole(t)
	buf := make([]byte, 10)
	in.WriteString("hello")
	if n, err := io.ReadFull(replica, buf[:5]); err != nil {
		t.Fatal(n, err)
	}
	replica.WriteString("world")
	if n, err := io.ReadFull(out, buf[:5]); err != nil || string(buf[:5]) != "world" {
		t.Fatalf("%d %v %q", n, err, buf)
	}
	if n := consoles(t); n != 1 {
		t.Errorf("%d descriptors of the terminal", n)
	}
}

func TestOutputComesThoughNobodyReadsTheInput(t *testing.T) {
	_, _, replica, in, out := testConsole(t)
	typed := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	done := make(chan error, 1)
	go func() {
		_, err := in.Write(typed)
		done <- err
	}()
	waitFor(t, "the terminal is full", func() bool { return consoles(t) == 2 })
	buf := make([]byte, 3)
	for range 3 {
		replica.WriteString("out")
		if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "out" {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	got := make([]byte, len(typed))
	if _, err := io.ReadFull(replica, got); err != nil || !bytes.Equal(got, typed) {
		t.Errorf("input is not what was typed, %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNothingIsReadOrWrittenAfterTheTerminalWasClosed(t *testing.T) {
	p, master, _, in, _ := testConsole(t)
	fd := int(master.Fd())
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if err := master.Close(); err != nil { // as the container does
		t.Fatal(err)
	}
	if err := unix.Dup3(fds[1], fd, unix.O_CLOEXEC); err != nil { // the number is used again
		t.Fatal(err)
	}
	unix.Close(fds[1])
	defer unix.Close(fd)
	input := p.in
	in.WriteString("secret")
	waitDone(t, "the input ends", input.done)
	p.finish()
	if n, err := unix.Read(fds[0], make([]byte, 10)); n > 0 {
		t.Errorf("%d bytes went to what took the number of the terminal", n)
	} else if err != unix.EAGAIN {
		t.Errorf("read: %v: its descriptor was closed", err)
	}
}
