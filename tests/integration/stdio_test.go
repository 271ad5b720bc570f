package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/fifo"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// noise is n bytes that do not repeat, the same ones every time.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// lines is what "probe lines n" prints.
func lines(n int) string {
	var b strings.Builder
	pad := strings.Repeat(".", 52)
	for i := range n {
		fmt.Fprintf(&b, "%010d %s\n", i, pad)
	}
	return b.String()
}

// wantSame compares long outputs.
func wantSame(t *testing.T, have, want string) {
	t.Helper()
	if have == want {
		return
	}
	i := 0
	for i < len(have) && i < len(want) && have[i] == want[i] {
		i++
	}
	t.Errorf("%d bytes, want %d; first difference at %d", len(have), len(want), i)
}

// closing calls f when the reader is at its end, as clients do with CloseIO.
type closing struct {
	io.Reader
	f func()
}

func (c *closing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err == io.EOF && c.f != nil {
		c.f()
		c.f = nil
	}
	return n, err
}

// containerd/containerd#2659
func TestStdinReachesInitAndEnds(t *testing.T) {
	t.Parallel()
	data := noise(1 << 20)
	var b *box
	started := make(chan struct{})
	in := &closing{bytes.NewReader(data), func() {
		<-started
		if err := b.task.CloseIO(b.ctx, containerd.WithStdinCloser); err != nil {
			t.Errorf("CloseIO: %v", err)
		}
	}}
	b = newBox(t, boxSpec{args: []string{"sha256sum"}, stdin: in})
	b.start()
	close(started)
	if code := b.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.delete()
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); b.out.String() != want {
		t.Errorf("got %q, want %q", b.out, want)
	}
}

// containerd/containerd#2439
func TestStdinReachesExecAndEnds(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	for _, n := range []int{0, 1, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := b.in(t)
			data := noise(n)
			var p *process
			started := make(chan struct{})
			in := &closing{bytes.NewReader(data), func() {
				<-started
				for range 2 { // the second is no error
					if err := p.p.CloseIO(b.ctx, containerd.WithStdinCloser); err != nil {
						t.Errorf("CloseIO: %v", err)
					}
				}
			}}
			p = b.addExec(execSpec{args: []string{"cat"}, stdin: in})
			if err := p.p.Start(b.ctx); err != nil {
				t.Fatal(err)
			}
			close(started)
			r := p.finish()
			if r.code != 0 {
				t.Errorf("exit code %d", r.code)
			}
			wantSame(t, r.out, string(data))
		})
	}
}

func TestCloseIOBeforeStartEndsStdin(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it forgets a CloseIO before the start")
	b := startBox(t, boxSpec{})
	p := b.addExec(execSpec{args: []string{"cat"}, stdin: strings.NewReader("")})
	if err := p.p.CloseIO(b.ctx, containerd.WithStdinCloser); err != nil {
		t.Fatalf("CloseIO: %v", err)
	}
	if err := p.p.Start(b.ctx); err != nil {
		t.Fatal(err)
	}
	if r := p.finish(); r != (result{}) {
		t.Errorf("got %v", r)
	}
}

func TestOutputIsComplete(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name  string
		lines int
	}{{"1 MB", 1 << 14}, {"10 MB", 10 << 14}} {
		want := lines(s.lines)
		args := []string{"probe", "lines", fmt.Sprint(s.lines)}
		t.Run(s.name+" from init", func(t *testing.T) {
			b, code := runBox(t, boxSpec{args: args})
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			wantSame(t, b.out.String(), want)
		})
		t.Run(s.name+" from an exec on both streams", func(t *testing.T) {
			b := startBox(t, boxSpec{})
			r := b.exec("sh", "-c", strings.Join(args, " ")+" & "+strings.Join(args, " ")+" >&2; wait")
			wantSame(t, r.out, want)
			wantSame(t, r.err, want)
		})
	}
}

// containerd/containerd#1449
func TestOutputOnATerminalIsComplete(t *testing.T) {
	t.Parallel()
	want := strings.ReplaceAll(lines(1<<14), "\n", "\r\n")
	args := []string{"probe", "lines", fmt.Sprint(1 << 14)}
	b, code := runBox(t, boxSpec{args: args, tty: true})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wantSame(t, b.out.String(), want)
	b = startBox(t, boxSpec{})
	wantSame(t, b.execWith(execSpec{args: args, tty: true}).out, want)
}

// containerd/containerd#840: the session did not end with its leader.
func TestATerminalSessionEndsWithItsLeader(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	p := b.startExec(execSpec{tty: true, args: []string{"sh", "-c", "trap '' HUP; sleep 3 & echo done"}})
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.out.waitFor(t, "done\r\n")
	events.wait(t, b.id, "exit "+p.id+" 0")
	p.finish()
}

func TestATerminalIsResized(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r, w := io.Pipe()
	p := b.startExec(execSpec{tty: true, stdin: r, args: []string{"sh", "-c", "while read x; do stty size; done"}})
	for _, size := range []struct{ w, h uint32 }{{80, 24}, {132, 50}} {
		if err := p.p.Resize(b.ctx, size.w, size.h); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(w)
		p.out.waitFor(t, fmt.Sprintf("%d %d\r\n", size.h, size.w))
	}
	// A control character goes through the line discipline: end of input.
	fmt.Fprint(w, "\x04")
	if r := p.finish(); r.code != 0 {
		t.Errorf("got %v", r)
	}
	w.Close()
}

func TestASizeSetBeforeTheStartCounts(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it loses a resize before the start of an exec")
	b := startBox(t, boxSpec{})
	p := b.addExec(execSpec{tty: true, args: []string{"stty", "size"}})
	if err := p.p.Resize(b.ctx, 99, 33); err != nil {
		t.Fatal(err)
	}
	if err := p.p.Start(b.ctx); err != nil {
		t.Fatal(err)
	}
	if r := p.finish(); r.out != "33 99\r\n" {
		t.Errorf("got %v", r)
	}
}

func TestTheConsoleSizeOfTheSpecCounts(t *testing.T) {
	t.Parallel()
	b, _ := runBox(t, boxSpec{tty: true, args: []string{"stty", "size"}, spec: editProcess(func(p *specs.Process) {
		p.ConsoleSize = &specs.Box{Height: 31, Width: 97}
	})})
	if b.out.String() != "31 97\r\n" {
		t.Errorf("got %q", b.out)
	}
}

func TestControlCInterruptsTheForegroundProcess(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r, w := io.Pipe()
	p := b.startExec(execSpec{tty: true, stdin: r, args: []string{"sh", "-c", "echo up; sleep 1000"}})
	p.out.waitFor(t, "up")
	fmt.Fprint(w, "\x03")
	if code := p.finish().code; code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	w.Close()
}

func TestWithoutStreamsAProcessHasDevNull(t *testing.T) {
	t.Parallel()
	script := `for fd in 0 1 2; do readlink /proc/self/fd/$fd; done > /tmp/out; cat; echo lost; echo lost >&2`
	b := startBox(t, boxSpec{null: true, args: []string{"sh", "-c", script + "; sleep 100000"}})
	ktest.Eventually(t, prompt, "the file", func() error {
		if out := b.ok("cat", "/tmp/out"); strings.Count(out, "\n") < 3 {
			return fmt.Errorf("have %q", out)
		}
		return nil
	})
	if out := b.ok("cat", "/tmp/out"); out != "/dev/null\n/tmp/out\n/dev/null\n" && !strings.HasPrefix(out, "/dev/null\n") {
		t.Errorf("descriptors %q", out)
	}
	b.stop()
}

// pipes are the FIFOs of a process, opened by the test itself.
type pipes struct {
	cio.Config
	dir string
}

func newPipes(t *testing.T, b *box) *pipes {
	t.Helper()
	dir := filepath.Join(b.d.Dir, "own-"+b.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &pipes{dir: dir, Config: cio.Config{Stdout: dir + "/out", Stderr: dir + "/err"}}
	for _, f := range []string{p.Stdout, p.Stderr} {
		if err := syscall.Mkfifo(f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// creator lets the client hand over the paths and do nothing with them.
func (p *pipes) creator(string) (cio.IO, error) { return given{p.Config}, nil }

type given struct{ c cio.Config }

func (g given) Config() cio.Config { return g.c }
func (given) Cancel()              {}
func (given) Wait()                {}
func (given) Close() error         { return nil }

// reader opens a FIFO as containerd's clients do.
func (p *pipes) reader(t *testing.T, path string) io.ReadCloser {
	t.Helper()
	r, err := fifo.OpenFifo(context.Background(), path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// containerd/containerd#9342: the container got SIGPIPE when its reader went
// away.
func TestAReaderMayGoAwayAndComeBack(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"sh", "-c", `i=0; while :; do echo "line $i" || exit 9; i=$((i+1)); sleep 0.01; done`}})
	p := newPipes(t, b)
	b.creator = p.creator
	first := p.reader(t, p.Stdout)
	p.reader(t, p.Stderr)
	b.start()
	scan := newLineReader(first)
	for i := range 10 {
		if l := scan.next(t); l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	first.Close()
	// Meanwhile the container writes into the void that the shim keeps open.
	b.waitTicks(20)
	second := p.reader(t, p.Stdout)
	defer second.Close()
	scan = newLineReader(second)
	scan.next(t) // may be half a line
	var from int
	if _, err := fmt.Sscanf(scan.next(t), "line %d", &from); err != nil {
		t.Fatal(err)
	}
	for i := from + 1; i < from+20; i++ {
		if l := scan.next(t); l != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

// waitTicks waits until the first process has been scheduled some more times.
func (b *box) waitTicks(n int) {
	b.t.Helper()
	switches := func() (v int) {
		fmt.Sscan(ktest.StatusField(b.pid(), "voluntary_ctxt_switches"), &v)
		return v
	}
	from := switches()
	ktest.Eventually(b.t, prompt, "the container to run on", func() error {
		if now := switches(); now < from+n {
			return fmt.Errorf("%d switches, want %d", now-from, n)
		}
		return nil
	})
}

type lineReader struct {
	ch chan string
}

func newLineReader(r io.Reader) *lineReader {
	l := &lineReader{make(chan string, 1000)}
	go func() {
		var rest []byte
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			rest = append(rest, buf[:n]...)
			for {
				i := bytes.IndexByte(rest, '\n')
				if i < 0 {
					break
				}
				l.ch <- string(rest[:i])
				rest = rest[i+1:]
			}
			if err != nil {
				close(l.ch)
				return
			}
		}
	}()
	return l
}

func (l *lineReader) next(t *testing.T) string {
	t.Helper()
	select {
	case s, ok := <-l.ch:
		if !ok {
			t.Fatal("end of the output")
		}
		return s
	case <-time.After(prompt * ktest.Slow()):
		t.Fatal("no more output")
	}
	return ""
}

// A client that opens the FIFOs and never reads may stop the container's
// writes, but neither its kill nor its deletion.
func TestAClientThatNeverReadsDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"probe", "lines", "1000000"}})
	p := newPipes(t, b)
	b.creator = p.creator
	r := p.reader(t, p.Stdout)
	p.reader(t, p.Stderr)
	b.start()
	b.kill(syscall.SIGKILL)
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	r.Close()
	b.delete()
}

// The output of one process may be stuck; others go on.
func TestAStuckReaderDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"probe", "lines", "1000000"}})
	p := newPipes(t, b)
	b.creator = p.creator
	r := p.reader(t, p.Stdout)
	p.reader(t, p.Stderr)
	b.start()
	wantSame(t, b.exec("probe", "lines", "16384").out, lines(1<<14))
	wantSame(t, b.execWith(execSpec{args: []string{"echo", "x"}, tty: true}).out, "x\r\n")
	b.kill(syscall.SIGKILL)
	b.wait()
	r.Close()
	b.delete()
}

func TestOutputGoesToAFile(t *testing.T) {
	t.Parallel()
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal %v", tty), func(t *testing.T) {
			t.Parallel()
			if tty {
				notIncumbent(t, "it takes the URI of a terminal's log for a path")
			}
			b := newBox(t, boxSpec{args: []string{"probe", "lines", "1000"}, tty: tty})
			dir := filepath.Join(b.d.Dir, "log-"+b.id)
			defer os.RemoveAll(dir)
			log := filepath.Join(dir, "deep", "log")
			b.creator = cio.LogFile(log)
			want := lines(1000)
			if tty {
				uri, err := cio.LogURIGenerator("file", log, nil)
				if err != nil {
					t.Fatal(err)
				}
				b.creator, want = cio.TerminalLogURI(uri), strings.ReplaceAll(want, "\n", "\r\n")
			}
			b.start()
			b.wait()
			b.delete()
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			wantSame(t, string(text), want)
		})
	}
}

// What a shim keeps open for a container's streams is closed with it.
func TestProcessesInherit012Only(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	for _, tty := range []bool{false, true} {
		r := b.execWith(execSpec{args: []string{"ls", "/proc/self/fd"}, tty: tty})
		if got := strings.Join(strings.Fields(r.out), " "); got != "0 1 2 3" { // 3 is the directory
			t.Errorf("terminal %v: descriptors %s", tty, got)
		}
		b2, _ := runBox(t, boxSpec{args: []string{"ls", "/proc/self/fd"}, tty: tty})
		if got := strings.Join(strings.Fields(b2.out.String()), " "); got != "0 1 2 3" {
			t.Errorf("init, terminal %v: descriptors %s", tty, got)
		}
	}
}
