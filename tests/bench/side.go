package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// side is one of the two runtimes with a container that sleeps, and its shim.
type side struct {
	name, runtime string
	d             *ctd.Daemon

	plain, filtered *place
	n               int
}

// place is a sleeping container: execs go into it, and its shim takes further
// containers.
type place struct {
	id        string
	container containerd.Container
	task      containerd.Task
	shim      *ctd.ShimClient
	shimPID   int
	spec      *oci.Spec
	process   *anypb.Any // of an exec of true
	missing   *anypb.Any
	rootfs    []*types.Mount
	dir       string // for bundles
}

func (s *side) begin(ctx context.Context) (err error) {
	if s.plain, err = s.newPlace(ctx, "plain"); err != nil {
		return err
	}
	s.filtered, err = s.newPlace(ctx, "filtered", func(_ context.Context, _ oci.Client, _ *container, spec *oci.Spec) error {
		spec.Linux.Seccomp = seccomp.DefaultProfile(spec)
		return nil
	})
	return err
}

func (s *side) end() {
	ctx, cancel := context.WithTimeout(s.d.Context(context.Background()), 20*time.Second)
	defer cancel()
	for _, p := range []*place{s.plain, s.filtered} {
		if p != nil {
			p.end(ctx)
		}
	}
}

// cpu is the CPU time so far of the side's shims and of the children that they
// have waited for. proc_pid_stat(5), fields 14 to 17.
func (s *side) cpu() (total time.Duration) {
	for _, p := range []*place{s.plain, s.filtered} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.shimPID))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, f := range fields[11:15] {
			if ticks, err := strconv.Atoi(f); err == nil {
				total += time.Duration(ticks) * 10 * time.Millisecond
			}
		}
	}
	return total
}

// id makes a name that was not used before.
func (s *side) id() string {
	s.n++
	return fmt.Sprintf("%s-%d", s.name, s.n)
}

// newContainer makes a container with the default spec.
func (s *side) newContainer(ctx context.Context, args []string, opts ...oci.SpecOpts) (containerd.Container, error) {
	img, err := s.d.Client.GetImage(ctx, ctd.ImageName)
	if err != nil {
		return nil, err
	}
	id := s.id()
	all := append([]oci.SpecOpts{oci.WithDefaultSpec(), oci.WithImageConfig(img), oci.WithProcessArgs(args...)}, opts...)
	return s.d.Client.NewContainer(ctx, id,
		containerd.WithRuntime(s.runtime, nil),
		containerd.WithSnapshotter(ctd.Snapshotter),
		containerd.WithNewSnapshot(id+"-snap", img),
		containerd.WithNewSpec(all...))
}

// newPlace starts a sleeping container whose name is also its pod's, so that
// containers of that pod come into the same shim.
func (s *side) newPlace(ctx context.Context, kind string, opts ...oci.SpecOpts) (*place, error) {
	pod := s.name + "-" + kind
	opts = append(opts, oci.WithAnnotations(map[string]string{"io.kubernetes.cri.sandbox-id": pod}))
	c, err := s.newContainer(ctx, []string{"sleep", "100000"}, opts...)
	if err != nil {
		return nil, err
	}
	p := &place{id: c.ID(), container: c, dir: filepath.Join(s.d.Dir, "state", "bundles-"+pod)}
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		return nil, err
	}
	if p.task, err = c.NewTask(ctx, cio.NullIO); err != nil {
		return nil, err
	}
	if err := p.task.Start(ctx); err != nil {
		return nil, err
	}
	if p.shim, err = s.d.Shim(p.id); err != nil {
		return nil, err
	}
	if p.shimPID, err = p.shim.PID(ctx, p.id); err != nil {
		return nil, err
	}
	if p.spec, err = c.Spec(ctx); err != nil {
		return nil, err
	}
	if p.process, err = process(p.spec, "true"); err != nil {
		return nil, err
	}
	if p.missing, err = process(p.spec, "no-such-command"); err != nil {
		return nil, err
	}
	return p, s.prepareRoot(ctx, p)
}

// prepareRoot makes the snapshot that the containers share which come into the
// shim directly, one after the other.
func (s *side) prepareRoot(ctx context.Context, p *place) error {
	img, err := s.d.Client.GetImage(ctx, ctd.ImageName)
	if err != nil {
		return err
	}
	ids, err := img.RootFS(ctx)
	if err != nil {
		return err
	}
	mounts, err := s.d.Client.SnapshotService(ctd.Snapshotter).Prepare(ctx, p.id+"-direct", chainID(ids),
		snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "bench"}))
	if err != nil {
		return err
	}
	for _, m := range mounts {
		p.rootfs = append(p.rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return nil
}

// process encodes the process of a spec with another command, as containerd's
// client does.
func process(spec *oci.Spec, args ...string) (*anypb.Any, error) {
	ps := *spec.Process
	ps.Args = args
	text, err := json.Marshal(ps)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: text}, nil
}

// bundle makes what containerd makes for a task, for the command.
func (s *side) bundle(p *place, args ...string) (id, dir string, err error) {
	id = s.id()
	dir = filepath.Join(p.dir, id)
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o711); err != nil {
		return "", "", err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", "", err
	}
	spec := *p.spec
	ps, linux := *p.spec.Process, *p.spec.Linux
	ps.Args = args
	linux.CgroupsPath = s.d.Cgroup(id)
	spec.Process, spec.Linux = &ps, &linux
	text, err := json.Marshal(spec)
	if err != nil {
		return "", "", err
	}
	return id, dir, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

func (p *place) end(ctx context.Context) {
	if p.task != nil {
		if _, err := p.task.Delete(ctx, containerd.WithProcessKill); err != nil {
			say("%s: delete: %v", p.id, err)
		}
	}
	if err := p.container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		say("%s: delete: %v", p.id, err)
	}
}

// execDirect runs a command to its end by the shim's task API.
func (p *place) execDirect(ctx context.Context, id string, spec *anypb.Any) error {
	if _, err := p.shim.Exec(ctx, &task.ExecProcessRequest{ID: p.id, ExecID: id, Spec: spec}); err != nil {
		return err
	}
	if _, err := p.shim.Start(ctx, &task.StartRequest{ID: p.id, ExecID: id}); err != nil {
		return err
	}
	st, err := p.shim.Wait(ctx, &task.WaitRequest{ID: p.id, ExecID: id})
	if err != nil {
		return err
	}
	if st.ExitStatus != 0 {
		return fmt.Errorf("exit status %d", st.ExitStatus)
	}
	_, err = p.shim.Delete(ctx, &task.DeleteRequest{ID: p.id, ExecID: id})
	return err
}

// execMissing has a command fail to start.
func (p *place) execMissing(ctx context.Context, id string) error {
	if _, err := p.shim.Exec(ctx, &task.ExecProcessRequest{ID: p.id, ExecID: id, Spec: p.missing}); err != nil {
		return err
	}
	if _, err := p.shim.Start(ctx, &task.StartRequest{ID: p.id, ExecID: id}); err == nil {
		return errors.New("the missing command started")
	}
	_, err := p.shim.Delete(ctx, &task.DeleteRequest{ID: p.id, ExecID: id})
	return err
}

// execClient does the same as execDirect and execMissing through containerd.
func (p *place) execClient(ctx context.Context, id, command string, missing bool) error {
	ps := *p.spec.Process
	ps.Args = []string{command}
	proc, err := p.task.Exec(ctx, id, &ps, cio.NullIO)
	if err != nil {
		return err
	}
	if missing {
		if err := proc.Start(ctx); err == nil {
			return errors.New("the missing command started")
		}
		_, err = proc.Delete(ctx)
		return err
	}
	ch, err := proc.Wait(ctx)
	if err != nil {
		return err
	}
	if err := proc.Start(ctx); err != nil {
		return err
	}
	if st := <-ch; st.Error() != nil || st.ExitCode() != 0 {
		return fmt.Errorf("exit code %d, %w", st.ExitCode(), st.Error())
	}
	_, err = proc.Delete(ctx)
	return err
}

// lifeDirect creates, starts, awaits and deletes a container in the shim of p.
func (p *place) lifeDirect(ctx context.Context, id, bundle string) error {
	_, err := p.shim.Create(ctx, &task.CreateTaskRequest{ID: id, Bundle: bundle, Rootfs: p.rootfs})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := p.shim.Start(ctx, &task.StartRequest{ID: id}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	st, err := p.shim.Wait(ctx, &task.WaitRequest{ID: id})
	if err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if st.ExitStatus != 0 {
		return fmt.Errorf("exit status %d", st.ExitStatus)
	}
	_, err = p.shim.Delete(ctx, &task.DeleteRequest{ID: id})
	return err
}

// lifeClient does the same through containerd, with a shim of its own, as
// docker or ctr do.
func (s *side) lifeClient(ctx context.Context, c containerd.Container) error {
	t, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	ch, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	if err := t.Start(ctx); err != nil {
		return err
	}
	if st := <-ch; st.Error() != nil || st.ExitCode() != 0 {
		return fmt.Errorf("exit code %d, %w", st.ExitCode(), st.Error())
	}
	_, err = t.Delete(ctx)
	return err
}

// harmless is a signal that a sleeping process ignores.
const harmless = syscall.SIGWINCH
