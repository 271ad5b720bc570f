package shim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func testPoller(t *testing.T) *poller {
	t.Helper()
	p, err := newPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// output is a process's output on its way to a FIFO.
type output struct {
	w    *os.File // the process's end
	fifo string
	s    *stream
}

func testOutput(t *testing.T, p *poller) *output {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := openTarget(t.Context(), fifo)
	if err != nil {
		t.Fatal(err)
	}
	w, r, err := pipeFor(ioOwner{}, "stdout", false)
	if err != nil {
		t.Fatal(err)
	}
	o := &output{w: w, fifo: fifo, s: newStream(p, r, target.fd, target.keep...)}
	t.Cleanup(func() { w.Close(); o.s.close() })
	o.s.start()
	return o
}

func (o *output) open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(o.fifo, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func waitDone(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: did not happen", what)
	}
}

func TestStreamDeliversEveryByteToASlowReader(t *testing.T) {
	o := testOutput(t, testPoller(t))
	f := o.open(t)
	data := make([]byte, 10<<20)
	rand.New(rand.NewSource(1)).Read(data)
	go func() {
		o.w.Write(data)
		o.w.Close()
	}()
	sum := sha256.New()
	buf := make([]byte, 3333)
	for i := 0; ; i++ {
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			time.Sleep(time.Millisecond) // slower than the writer: the FIFO fills
		}
	}
	if want := sha256.Sum256(data); !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Error("what was read differs from what was written")
	}
}

func TestWriterSurvivesAReaderThatGoesAwayAndComesBack(t *testing.T) {
	o := testOutput(t, testPoller(t))
	f := o.open(t)
	io.WriteString(o.w, "one\n")
	b := make([]byte, 4)
	if _, err := io.ReadFull(f, b); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := io.WriteString(o.w, "two\n"); err != nil {
		t.Fatalf("write without a reader: %v", err)
	}
	f = o.open(t)
	if _, err := io.ReadFull(f, b); err != nil || string(b) != "two\n" {
		t.Errorf("after coming back: read %q, %v; want two", b, err)
	}
}

func TestOutputOfAProcessThatWasFasterThanItsClientIsKept(t *testing.T) {
	o := testOutput(t, testPoller(t))
	io.WriteString(o.w, "quick\n")
	o.w.Close()
	waitDone(t, "end of the stream", o.s.done)
	got, err := io.ReadAll(o.open(t))
	if err != nil || string(got) != "quick\n" {
		t.Errorf("read %q, %v; want quick", got, err)
	}
}

func TestAClientThatComesLateSeesTheEnd(t *testing.T) {
	o := testOutput(t, testPoller(t))
	o.w.Close() // it printed nothing
	waitDone(t, "end of the stream", o.s.done)
	if got, err := io.ReadAll(o.open(t)); err != nil || len(got) != 0 {
		t.Errorf("read %q, %v; want the end", got, err)
	}
}

func TestDrainEndsTheReaderThoughAChildHoldsThePipe(t *testing.T) {
	o := testOutput(t, testPoller(t))
	f := o.open(t)
	io.WriteString(o.w, "ok\n")
	o.s.drain(10 * time.Second)
	got, err := io.ReadAll(f)
	if err != nil || string(got) != "ok\n" {
		t.Errorf("read %q, %v; want ok", got, err)
	}
	// The child writes on, more than a pipe holds, and is not killed for it.
	if _, err := o.w.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("write after drain: %v", err)
	}
}

func TestDrainIsBoundedWhenAChildWritesForEver(t *testing.T) {
	o := testOutput(t, testPoller(t))
	f := o.open(t)
	go io.Copy(io.Discard, f)
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				o.w.Write(make([]byte, 4096))
			}
		}
	}()
	defer close(stop)
	done := make(chan struct{})
	go func() { o.s.drain(10 * time.Second); close(done) }()
	waitDone(t, "end of drain", done)
}

func TestDrainGivesUpOnAReaderThatDoesNotRead(t *testing.T) {
	o := testOutput(t, testPoller(t))
	o.open(t)
	go func() {
		o.w.Write(make([]byte, 1<<20))
		o.w.Close()
	}()
	waitFor(t, "a full FIFO", func() bool {
		o.s.mu.Lock()
		defer o.s.mu.Unlock()
		n, err := unix.IoctlGetInt(o.s.dst, unix.TIOCINQ)
		return err == nil && n >= 60<<10
	})
	o.s.drain(10 * time.Millisecond)
	waitDone(t, "end of the sink", o.s.done)
}

func TestInputEndsAfterCloseIOAndTheLastClient(t *testing.T) {
	poll := testPoller(t)
	fifo := filepath.Join(t.TempDir(), "stdin")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := openIO(t.Context(), poll, ioSpec{stdin: fifo}, ioOwner{}, logID{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.abort()
	stdin, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(p.child.Stdin.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), "stdin")
	defer child.Close()
	if err := p.started(nil); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 1<<20)
	go func() {
		p.closeStdin()
		p.closeStdin() // twice is once
		stdin.Write(data)
		stdin.Close()
	}()
	got, err := io.ReadAll(child)
	if err != nil || len(got) != len(data) {
		t.Errorf("process read %d bytes, %v; want %d", len(got), err, len(data))
	}
}

func TestTerminalOutputIsWholeAfterHangup(t *testing.T) {
	poll := testPoller(t)
	master, replica := testPTY(t)
	fifo := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := openIO(t.Context(), poll, ioSpec{stdout: fifo, terminal: true}, ioOwner{}, logID{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := p.started(master); err != nil {
		t.Fatal(err)
	}
	line := []byte("0123456789abcdefghijklmnopqrstuvwxyz\n")
	go func() {
		for range 20000 {
			replica.Write(line)
		}
		replica.Close()
	}()
	got, err := io.ReadAll(f)
	if want := 20000 * (len(line) + 1); err != nil || len(got) != want { // \n becomes \r\n
		t.Errorf("read %d bytes, %v; want %d", len(got), err, want)
	}
	p.finish()
}

// testPTY makes a terminal.
func testPTY(t *testing.T) (master, replica *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no /dev/ptmx: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	replica, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, replica
}

func TestFileOutputIsAppendedAndSurvivesABrokenSink(t *testing.T) {
	poll := testPoller(t)
	path := filepath.Join(t.TempDir(), "a", "log")
	for range 2 {
		p, err := openIO(t.Context(), poll, ioSpec{stdout: "file://" + path, stderr: "file://" + path}, ioOwner{}, logID{})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.child.Stdout, "out\n")
		io.WriteString(p.child.Stderr, "err\n")
		if err := p.started(nil); err != nil {
			t.Fatal(err)
		}
		p.finish()
	}
	got, err := os.ReadFile(path)
	if err != nil || bytes.Count(got, []byte("out\n")) != 2 || bytes.Count(got, []byte("err\n")) != 2 {
		t.Errorf("file holds %q, %v; want two lines of each", got, err)
	}
	full, err := openIO(t.Context(), poll, ioSpec{stdout: "/dev/full"}, ioOwner{}, logID{})
	if err != nil {
		t.Fatal(err)
	}
	w := full.child.Stdout
	full.child.Stdout = nil
	defer w.Close()
	if err := full.started(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("write to a broken sink: %v", err)
	}
	full.finish()
}

func TestStreamsLeakNoDescriptors(t *testing.T) {
	poll := testPoller(t)
	count := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(d)
	}
	dir := t.TempDir()
	for _, n := range []string{"in", "out", "err"} {
		if err := unix.Mkfifo(filepath.Join(dir, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"out", "err"} { // a client that is there
		fd, err := unix.Open(filepath.Join(dir, n), unix.O_RDONLY|openFlags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	before := count()
	for i := range 100 {
		p, err := openIO(t.Context(), poll, ioSpec{
			stdin: filepath.Join(dir, "in"), stdout: filepath.Join(dir, "out"), stderr: filepath.Join(dir, "err"),
			terminal: i%3 == 0,
		}, ioOwner{}, logID{})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			p.abort()
			continue
		}
		if err := p.started(nil); err != nil {
			t.Fatal(err)
		}
		p.finish()
		if i%3 == 0 {
			p.gone = false // no terminal was attached: what waits for one is given up
			p.abort()
		}
	}
	waitFor(t, "all descriptors closed", func() bool { return count() <= before })
}

func TestAStartWaitsForTheClientToOpenItsEnd(t *testing.T) {
	old := readerWait
	readerWait = time.Minute
	defer func() { readerWait = old }()
	fifo := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		s, err := openTarget(ctx, fifo)
		s.close()
		opened <- err
	}()
	f, err := os.OpenFile(fifo, os.O_RDONLY, 0) // blocks until the shim has opened its end
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := <-opened; err != nil {
		t.Errorf("open with a client: %v", err)
	}
	f.Close()
	cancel()
	if _, err := openTarget(ctx, fifo); !errors.Is(err, context.Canceled) {
		t.Errorf("open without a client, canceled: %v", err)
	}
}
