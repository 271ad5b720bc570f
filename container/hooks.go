package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
)

// hookOutput bounds what is kept of a hook's output for its error.
const hookOutput = 4096

// hookNames are the hooks by their names in config.json, in the order of the
// life cycle.
var hookNames = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

func hooksOf(h *specs.Hooks, name string) []specs.Hook {
	if h == nil {
		return nil
	}
	switch name {
	case "prestart":
		return h.Prestart //nolint:staticcheck // deprecated, and still part of the specification
	case "createRuntime":
		return h.CreateRuntime
	case "createContainer":
		return h.CreateContainer
	case "startContainer":
		return h.StartContainer
	case "poststart":
		return h.Poststart
	}
	return h.Poststop
}

func validateHooks(s *specs.Spec) error {
	for _, name := range hookNames {
		for i, h := range hooksOf(s.Hooks, name) {
			field := fmt.Sprintf("hooks.%s[%d]", name, i)
			switch {
			case !path.IsAbs(h.Path) || hasNUL(h.Path):
				return invalid(field+".path", "%q is not absolute", h.Path)
			case h.Timeout != nil && *h.Timeout <= 0:
				return invalid(field+".timeout", "%d: want more than 0 seconds", *h.Timeout)
			}
			for _, s := range append(append([]string{}, h.Args...), h.Env...) {
				if hasNUL(s) {
					return invalid(field, "NUL byte in args or env")
				}
			}
		}
	}
	return nil
}

// pauses reports whether creation has to stop before pivot_root for hooks.
func pauses(s *specs.Spec) bool {
	for _, name := range []string{"prestart", "createRuntime", "createContainer"} {
		if len(hooksOf(s.Hooks, name)) > 0 {
			return true
		}
	}
	return false
}

// atPivot runs the hooks that come when the mounts are made and the old root is
// still there. Those of the runtime's namespaces come first.
func (c *Container) atPivot(ctx context.Context, child *exec.Child) error {
	if err := c.noteProcess(child); err != nil {
		return err
	}
	for _, name := range []string{"prestart", "createRuntime"} {
		if err := c.runHooks(ctx, name, specs.StateCreated, child.PID, hostPlace); err != nil {
			return err
		}
	}
	return c.runHooks(ctx, "createContainer", specs.StateCreated, c.pidInside(child.PID), func() (*exec.Place, func(), error) {
		return c.insidePlace(child)
	})
}

// noteProcess puts the first process into the record before it is ready: a hook in
// the container's cgroup may outlive us, and whoever cleans up has to know that
// the cgroup is the container's.
func (c *Container) noteProcess(child *exec.Child) error {
	h, err := host()
	if err != nil {
		return err
	}
	fd, err := child.Pidfd()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c.rec.PID = child.PID
	if c.rec.StartTime, err = startTime(h.proc, fd, child.PID); err != nil {
		return err
	}
	return c.rec.save(c.state)
}

// pidInside is the first process's PID as the container's namespace counts it.
func (c *Container) pidInside(pid int) int {
	if isNew(c.spec, specs.PIDNamespace) {
		return 1
	}
	return pid
}

// hostPlace is the runtime's own namespaces.
func hostPlace() (*exec.Place, func(), error) {
	return &exec.Place{JoinOf: -1, CgroupInto: -1}, func() {}, nil
}

// insidePlace is the container's namespaces, as child has them now, and its
// cgroup.
func (c *Container) insidePlace(child *exec.Child) (*exec.Place, func(), error) {
	fd, err := child.Pidfd()
	if err != nil {
		return nil, nil, err
	}
	return &exec.Place{
		JoinOf: fd, JoinMask: c.joinMask(), CgroupTasks: c.group.JoinFDs(), CgroupInto: c.into(),
	}, func() { unix.Close(fd) }, nil
}

// runHooks runs the hooks called name, one after another, until one fails.
func (c *Container) runHooks(ctx context.Context, name string, status specs.ContainerState, pid int,
	place func() (*exec.Place, func(), error),
) error {
	for i := range hooksOf(c.spec.Hooks, name) {
		if err := c.oneHook(ctx, name, i, c.ociState(status, pid), place); err != nil {
			// The second half is what callers of other runtimes look for.
			return fmt.Errorf("hooks.%s[%d]: error running %s hook #%d: %w", name, i, name, i, err)
		}
	}
	return nil
}

func (c *Container) oneHook(ctx context.Context, name string, i int, state *specs.State,
	place func() (*exec.Place, func(), error),
) error {
	at, done, err := place()
	if err != nil {
		return err
	}
	defer done()
	s := &exec.Start{Place: at}
	p := c.hookProcess(name)
	if p.Seccomp != nil {
		agent, err := c.connectAgent()
		if err != nil {
			return err
		}
		defer closeAgent(agent)
		s.Listener = c.tellAgent(agent, state.Status)
	}
	s.Process = &p
	return runHook(ctx, &hooksOf(c.spec.Hooks, name)[i], s, state)
}

// hookProcess is what a hook may do: on the host's side what we may, inside the
// namespaces of the container the same there, and for startContainer, which runs
// in the container's place, what its process may.
func (c *Container) hookProcess(name string) exec.Process {
	if name == "startContainer" {
		p := *c.init.spec
		p.Terminal, p.Cwd = false, "/"
		setHome(&p, c.root)
		return p
	}
	mapped := private(c.spec, specs.UserNamespace)
	p := privileged(name == "createContainer" && mapped)
	if name == "createContainer" && !mapped {
		// Where users of OCI runtimes expect it. With a user namespace the way there
		// may be closed.
		p.Cwd = rootPath(c.spec, c.opts.Bundle)
	}
	return p
}

func privileged(mapped bool) exec.Process {
	all := exec.Held()
	if mapped {
		all = exec.AllCaps()
	}
	return exec.Process{Cwd: "/", Umask: 0o022, AllCaps: mapped, Caps: exec.Caps{Bounding: all, Effective: all, Permitted: all}}
}

// ociState is the state that hooks get on standard input.
func (c *Container) ociState(status specs.ContainerState, pid int) *specs.State {
	return &specs.State{
		Version: specs.Version, ID: c.opts.ID, Status: status, Pid: pid, Bundle: c.opts.Bundle, Annotations: c.spec.Annotations,
	}
}

// runHook runs one hook: its own environment and nothing of the container's
// (CVE-2025-23266), the state on standard input, its output for the error only.
func runHook(ctx context.Context, h *specs.Hook, s *exec.Start, state *specs.State) error {
	p := s.Process
	host, err := host()
	if err != nil {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	// Without one, a hook in the container's place has the process's environment,
	// which hookProcess gave it, and the others have none.
	if h.Env != nil {
		p.Env = h.Env
	}
	p.Path, p.Args = h.Path, h.Args
	if len(p.Args) == 0 {
		p.Args = []string{h.Path}
	}
	s.Place.Proc = host.proc.FD()
	if h.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(*h.Timeout)*time.Second,
			fmt.Errorf("no end after %d s: %w", *h.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return err
	}
	p.Stdio = [3]int{int(inR.Fd()), int(outW.Fd()), int(outW.Fd())}
	child, err := exec.Run(ctx, s)
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return err
	}
	return talk(ctx, child, inW, outR, text)
}

// talk feeds the hook, collects what it says and judges its end. What it leaves
// running may hold the pipes: nobody waits for that.
func talk(ctx context.Context, child *exec.Child, in, out *os.File, state []byte) error {
	go func() {
		in.Write(state) //nolint:errcheck // a hook need not read it
		in.Close()
	}()
	said := make(chan string, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(out, hookOutput))
		said <- string(data)
		io.Copy(io.Discard, out) //nolint:errcheck // it ends with the hook
	}()
	defer out.Close()
	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Abort()
		return context.Cause(ctx)
	}
	code := child.Status().Code
	if code == 0 {
		return nil
	}
	text := ""
	out.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) //nolint:errcheck // a pipe takes deadlines
	if s := strings.TrimSpace(<-said); s != "" {
		text = ": " + s
	}
	if sig := unix.Signal(code - 128); code > 128 && unix.SignalName(sig) != "" {
		text = fmt.Sprintf(" (%s)%s", sig, text)
	}
	return fmt.Errorf("exit status %d%s", code, text)
}

// poststop runs the last hooks; every one of them, whatever becomes of the
// others. The errors are for a warning.
func poststop(ctx context.Context, hooks []specs.Hook, state *specs.State) error {
	var errs []error
	for i := range hooks {
		at, _, _ := hostPlace()
		p := privileged(false)
		if err := runHook(ctx, &hooks[i], &exec.Start{Process: &p, Place: at}, state); err != nil {
			errs = append(errs, fmt.Errorf("hooks.poststop[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}
