package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

const goarch = runtime.GOARCH

// prompt is how long something that happens at once may take here: long enough
// for a loaded machine, shorter than the time-outs that would hide a hang.
const prompt = 20 * time.Second

// boxSpec says which container a test wants. The zero value sleeps.
type boxSpec struct {
	args   []string
	spec   []oci.SpecOpts
	opts   []containerd.NewContainerOpts
	tty    bool
	null   bool // no streams at all
	stdin  io.Reader
	stdout io.Writer   // otherwise box.out
	daemon *ctd.Daemon // otherwise the shared one
	pod    string      // group with others of that name
	id     string
}

// box is a container under test.
type box struct {
	t          *testing.T
	d          *ctd.Daemon
	ctx        context.Context
	id         string
	container  containerd.Container
	task       containerd.Task
	out, err   *buffer
	exited     <-chan containerd.ExitStatus
	shimPID    int
	creator    cio.Creator
	execs      *atomic.Int32
	deleted    bool
	shimKilled bool
	sockets    []string
	pids       []int
}

var boxes atomic.Int32

// newBox makes a container without a task. At the end of the test it is ended
// and removed if it still exists, and then nothing may be left of it.
func newBox(t *testing.T, s boxSpec) *box {
	t.Helper()
	b := &box{t: t, d: s.daemon, id: s.id, out: &buffer{}, err: &buffer{}, execs: &atomic.Int32{}}
	if b.d == nil {
		b.d = shared
	}
	if b.id == "" {
		b.id = fmt.Sprintf("c%d", boxes.Add(1))
	}
	// Not the test's own context: that one ends before the cleanup.
	ctx, cancel := context.WithTimeout(b.d.Context(context.Background()), time.Minute*ktest.Slow())
	b.ctx = ctx
	t.Cleanup(cancel)
	img, err := b.d.Client.GetImage(ctx, ctd.ImageName)
	if err != nil {
		t.Fatal(err)
	}
	args := s.args
	if args == nil {
		args = []string{"sleep", "100000"}
	}
	opts := []oci.SpecOpts{oci.WithDefaultSpec(), oci.WithImageConfig(img), oci.WithProcessArgs(args...)}
	if s.tty {
		opts = append(opts, oci.WithTTY)
	}
	if s.pod != "" {
		opts = append(opts, oci.WithAnnotations(map[string]string{"io.kubernetes.cri.sandbox-id": s.pod}))
	}
	copts := append([]containerd.NewContainerOpts{
		containerd.WithRuntime(runtimeName, nil),
		containerd.WithSnapshotter(ctd.Snapshotter),
		containerd.WithNewSnapshot(b.id+"-snap", img),
		containerd.WithNewSpec(append(opts, s.spec...)...),
	}, s.opts...)
	if b.container, err = b.d.Client.NewContainer(ctx, b.id, copts...); err != nil {
		t.Fatalf("new container: %v", err)
	}
	b.creator = b.streams(s)
	t.Cleanup(b.end)
	return b
}

// streams makes the creator of the first process's FIFOs.
func (b *box) streams(s boxSpec) cio.Creator {
	if s.null {
		return cio.NullIO
	}
	var out io.Writer = b.out
	if s.stdout != nil {
		out = s.stdout
	}
	opts := []cio.Opt{cio.WithStreams(s.stdin, out, b.err), b.fifos()}
	if s.tty {
		opts = append(opts, cio.WithTerminal)
	}
	return cio.NewCreator(opts...)
}

func (b *box) fifos() cio.Opt { return cio.WithFIFODir(filepath.Join(b.d.Dir, "fifo")) }

// in returns the box for use in a subtest.
func (b *box) in(t *testing.T) *box {
	c := *b
	c.t = t
	return &c
}

// steady fails the test unless the shim holds no more than before. Some more
// threads are the Go runtime's. The incumbent starts programs, and Go keeps
// their pidfds until the garbage collector runs.
func (b *box) steady(before ktest.Footprint) {
	b.t.Helper()
	if incumbent() {
		before.FDs = append(before.FDs, make([]string, 20)...)
	}
	before.CheckSteady(b.t, prompt, 10)
}

// tryCreate creates the task: the process waits for its start.
func (b *box) tryCreate() error {
	task, err := b.container.NewTask(b.ctx, b.creator)
	if err != nil {
		return err
	}
	b.task, b.deleted = task, false
	b.pids = append(b.pids, int(task.Pid()))
	if b.exited, err = task.Wait(b.ctx); err != nil {
		return err
	}
	shim, err := b.d.Shim(b.id)
	if err != nil {
		return err
	}
	defer shim.Close()
	b.sockets = append(b.sockets, shim.Socket)
	b.shimPID, err = shim.PID(b.ctx, b.id)
	return err
}

func (b *box) create() *box {
	b.t.Helper()
	if err := b.tryCreate(); err != nil {
		b.t.Fatalf("create: %v", err)
	}
	return b
}

func (b *box) start() *box {
	b.t.Helper()
	if b.task == nil {
		b.create()
	}
	if err := b.task.Start(b.ctx); err != nil {
		b.t.Fatalf("start: %v", err)
	}
	return b
}

// startBox makes a container and starts it.
func startBox(t *testing.T, s boxSpec) *box {
	t.Helper()
	return newBox(t, s).start()
}

// runBox runs a container to its end, deletes the task and returns the box and
// the exit code.
func runBox(t *testing.T, s boxSpec) (*box, uint32) {
	t.Helper()
	b := startBox(t, s)
	code := b.wait()
	b.delete()
	return b, code
}

// wait waits for the exit of the first process.
func (b *box) wait() uint32 {
	b.t.Helper()
	select {
	case st := <-b.exited:
		code, at, err := st.Result()
		if err != nil {
			b.t.Fatalf("wait: %v", err)
		}
		if time.Since(at) > time.Minute || time.Until(at) > time.Minute {
			b.t.Errorf("exit time %v is not now", at)
		}
		return code
	case <-time.After(prompt * ktest.Slow()):
		b.t.Fatalf("the container does not exit; output %q", b.out)
		return 0
	}
}

// delete deletes the stopped task and returns its exit code.
func (b *box) delete() uint32 {
	b.t.Helper()
	b.drain(b.task.IO())
	ctx, cancel := context.WithTimeout(b.ctx, prompt*ktest.Slow())
	defer cancel()
	st, err := b.task.Delete(ctx)
	if err != nil {
		b.t.Fatalf("delete: %v", err)
	}
	b.deleted = true
	return st.ExitCode()
}

// drain waits for the end of the output. The client's Delete closes its FIFOs
// first and so may lose what is still in them.
func (b *box) drain(io cio.IO) {
	b.t.Helper()
	if io == nil {
		return
	}
	done := make(chan struct{})
	go func() { io.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(prompt * ktest.Slow()):
		b.t.Errorf("the output on %s does not end", io.Config().Stdout)
		buf := make([]byte, 1<<20)
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "fifo") {
				b.t.Logf("our reader: %s", g)
			}
		}
		b.dumpShim()
	}
}

// wantEvents fails the test unless the events of the deleted task came in this
// order. The incumbent may end before its last event is out.
func (b *box) wantEvents(texts ...string) {
	b.t.Helper()
	if incumbent() {
		texts = slices.DeleteFunc(texts, func(s string) bool { return s == "delete" })
	}
	wantOrder(b.t, events.wait(b.t, b.id, texts[len(texts)-1]), texts...)
}

// stop ends the container with SIGKILL and deletes the task.
func (b *box) stop() uint32 {
	b.t.Helper()
	b.kill(syscall.SIGKILL)
	b.wait()
	return b.delete()
}

func (b *box) kill(sig syscall.Signal, opts ...containerd.KillOpts) {
	b.t.Helper()
	if err := b.task.Kill(b.ctx, sig, opts...); err != nil {
		b.t.Fatalf("kill %v: %v", sig, err)
	}
}

func (b *box) status() containerd.ProcessStatus {
	b.t.Helper()
	st, err := b.task.Status(b.ctx)
	if err != nil {
		b.t.Fatalf("status: %v", err)
	}
	return st.Status
}

// pid of the first process.
func (b *box) pid() int { return int(b.task.Pid()) }

// end removes what the test left and checks the residue.
func (b *box) end() {
	b.t.Helper()
	if b.task != nil && !b.deleted {
		ctx, cancel := context.WithTimeout(b.ctx, prompt*ktest.Slow())
		defer cancel()
		_, err := b.task.Delete(ctx, containerd.WithProcessKill)
		if err != nil && !errdefs.IsNotFound(err) {
			b.t.Errorf("delete at the end: %v", err)
		}
	}
	if b.d.Client == nil {
		return
	}
	if err := b.container.Delete(b.ctx, containerd.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		b.t.Errorf("delete container: %v", err)
	}
	b.checkResidue()
	if b.t.Failed() {
		b.t.Logf("events of %s: %s", b.id, short(fmt.Sprintf("%q", events.of(b.id))))
	}
}

// checkResidue fails the test if something of the container is left. The shim
// of a pod lives on until its last container is deleted.
func (b *box) checkResidue() {
	b.t.Helper()
	r := ktest.Residue{
		Cgroup: b.d.Cgroup(b.id),
		Dirs:   []string{b.d.Bundle(b.id), b.d.Work(b.id)},
		PIDs:   b.pids,
	}
	if b.shimPID == 0 || !b.shared() {
		r.Arg, r.Files = b.id, b.sockets
		if incumbent() && b.shimKilled { // nobody removes its socket
			r.Files = nil
		}
		if b.shimPID != 0 {
			r.PIDs = append(r.PIDs, b.shimPID)
		}
	}
	if r.Check(b.t, prompt); b.t.Failed() {
		b.dumpShim()
	}
}

// dumpShim logs what a shim that hangs is doing, and what it holds.
func (b *box) dumpShim() {
	if b.shimPID == 0 || !ktest.Alive(b.shimPID) {
		return
	}
	log := b.d.Log()
	_ = syscall.Kill(b.shimPID, syscall.SIGUSR1)
	_ = ktest.Poll(3*time.Second, func() error {
		if !strings.Contains(b.d.Log()[len(log):], "goroutine ") {
			return errors.New("no dump")
		}
		return nil
	})
	b.t.Logf("descriptors of the shim: %q", ktest.FDs(b.shimPID))
	b.t.Logf("children: %v", ktest.Children(b.shimPID))
	b.t.Logf("from the log: %s", b.d.Log()[len(log):])
}

// shared tells whether other containers live in the same shim.
func (b *box) shared() bool {
	pods.Lock()
	defer pods.Unlock()
	return pods.users[b.shimPID] > 0
}

// pods counts the containers, by shim, that keep the shim alive although
// another container of it was deleted. Tests of pods fill it.
var pods = struct {
	sync.Mutex
	users map[int]int
}{users: map[int]int{}}

// buffer collects output; it may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor waits until the output holds the text.
func (b *buffer) waitFor(t *testing.T, text string) {
	t.Helper()
	ktest.Eventually(t, prompt, fmt.Sprintf("output %q", text), func() error {
		if s := b.String(); !strings.Contains(s, text) {
			return fmt.Errorf("have %q", s)
		}
		return nil
	})
}

// wantError fails the test unless err is of the kind (nil for any) and its text
// holds all the parts.
func wantError(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %.100q", parts)
		return
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("error %q is not %q", short(err.Error()), kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", short(err.Error()), p)
		}
	}
}

// short cuts a text for a message.
func short(s string) string {
	if len(s) > 1000 {
		return s[:500] + " ... " + s[len(s)-400:]
	}
	return s
}
