package integration

import (
	"context"
	"fmt"
	"io"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// result is what an exec gave.
type result struct {
	code     uint32
	out, err string
}

func (r result) String() string {
	return fmt.Sprintf("code %d, out %q, err %q", r.code, short(r.out), short(r.err))
}

// execSpec says what to run in a living container.
type execSpec struct {
	args  []string
	edit  func(*specs.Process)
	stdin io.Reader
	tty   bool
	id    string
}

// process is an exec.
type process struct {
	b        *box
	id       string
	p        containerd.Process
	out, err *buffer
	exited   <-chan containerd.ExitStatus
	code     *uint32
}

// tryExec adds an exec that is not started yet.
func (b *box) tryExec(s execSpec) (*process, error) {
	b.t.Helper()
	spec, err := b.container.Spec(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	ps := spec.Process
	ps.Args, ps.Terminal = s.args, s.tty
	if s.edit != nil {
		s.edit(ps)
	}
	p := &process{b: b, id: s.id, out: &buffer{}, err: &buffer{}}
	if p.id == "" {
		p.id = fmt.Sprintf("e%d", b.execs.Add(1))
	}
	opts := []cio.Opt{cio.WithStreams(s.stdin, p.out, p.err), b.fifos()}
	if s.tty {
		opts = append(opts, cio.WithTerminal)
	}
	if p.p, err = b.task.Exec(b.ctx, p.id, ps, cio.NewCreator(opts...)); err != nil {
		return nil, err
	}
	if p.exited, err = p.p.Wait(b.ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func (b *box) addExec(s execSpec) *process {
	b.t.Helper()
	p, err := b.tryExec(s)
	if err != nil {
		b.t.Fatalf("exec %.80q: %v", s.args, short(err.Error()))
	}
	return p
}

// startExec adds an exec and starts it.
func (b *box) startExec(s execSpec) *process {
	b.t.Helper()
	p := b.addExec(s)
	if err := p.p.Start(b.ctx); err != nil {
		b.t.Fatalf("exec %.80q: start: %v", s.args, short(err.Error()))
	}
	return p
}

// exec runs a command in the container to its end.
func (b *box) exec(args ...string) result {
	b.t.Helper()
	return b.execWith(execSpec{args: args})
}

func (b *box) execWith(s execSpec) result {
	b.t.Helper()
	return b.startExec(s).finish()
}

// ok is exec of something that must succeed; it returns the output.
func (b *box) ok(args ...string) string {
	b.t.Helper()
	r := b.exec(args...)
	if r.code != 0 {
		b.t.Fatalf("exec %q: %v", args, r)
	}
	return r.out
}

// failExec starts an exec that must fail to start, deletes it, and returns the
// error.
func (b *box) failExec(s execSpec) error {
	b.t.Helper()
	p := b.addExec(s)
	err := p.p.Start(b.ctx)
	if err == nil {
		b.t.Fatalf("exec %.80q started: %v", s.args, p.finish())
	}
	if _, derr := p.p.Delete(b.ctx); derr != nil && !errdefs.IsNotFound(derr) {
		b.t.Errorf("delete of an exec that did not start: %v", derr)
	}
	return err
}

// wait waits for the exit of the exec.
func (p *process) wait() uint32 {
	p.b.t.Helper()
	if p.code != nil {
		return *p.code
	}
	select {
	case st := <-p.exited:
		code, _, err := st.Result()
		if err != nil {
			p.b.t.Fatalf("wait for exec %s: %v", p.id, err)
		}
		p.code = &code
		return code
	case <-time.After(prompt * ktest.Slow()):
		p.b.t.Fatalf("exec %s does not exit; output %q, %q", p.id, p.out, p.err)
		return 0
	}
}

// finish waits for the exit and deletes the exec, which waits for its output.
func (p *process) finish() result {
	p.b.t.Helper()
	code := p.wait()
	p.b.drain(p.p.IO())
	ctx, cancel := context.WithTimeout(p.b.ctx, prompt*ktest.Slow())
	defer cancel()
	st, err := p.p.Delete(ctx)
	if err != nil {
		p.b.t.Fatalf("delete exec %s: %v", p.id, err)
	}
	if st.ExitCode() != code {
		p.b.t.Errorf("exec %s: wait said %d, delete said %d", p.id, code, st.ExitCode())
	}
	return result{code, p.out.String(), p.err.String()}
}
