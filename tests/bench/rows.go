package main

import (
	"context"
	"os"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

type container = containers.Container

func chainID(ids []digest.Digest) string { return identity.ChainID(ids).String() }

// row is a line of the table.
type row struct {
	name string // as in targets.txt
	what string
	slow bool // half as many
	// ownShim says that the work is not done in the sides' own shims, so that
	// these tell nothing about its CPU time.
	ownShim bool
	run     func(context.Context, *side) (time.Duration, error)
}

// timed measures what f does.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

var rows = []row{
	{
		name: "exec/shim", what: "exec `true`, to exit and delete; the shim's task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.plain.execDirect(ctx, id, s.plain.process) })
		},
	},
	{
		name: "exec/client", what: "the same through containerd's client",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.plain.execClient(ctx, id, "true", false) })
		},
	},
	{
		name: "exec-seccomp/shim", what: "exec `true` with containerd's default seccomp profile; task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.filtered.execDirect(ctx, id, s.filtered.process) })
		},
	},
	{
		name: "exec-seccomp/client", what: "the same through the client",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.filtered.execClient(ctx, id, "true", false) })
		},
	},
	{
		name: "missing/shim", what: "exec of a command that is not there; task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.plain.execMissing(ctx, id) })
		},
	},
	{
		name: "missing/client", what: "the same through the client",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			id := s.id()
			return timed(func() error { return s.plain.execClient(ctx, id, "no-such-command", true) })
		},
	},
	{
		name: "life/shim", what: "create, start, exit and delete of `true` in a running shim; task API", slow: true,
		run: func(ctx context.Context, s *side) (time.Duration, error) { return lifeDirect(ctx, s, s.plain) },
	},
	{
		name: "life-seccomp/shim", what: "the same with the default seccomp profile", slow: true,
		run: func(ctx context.Context, s *side) (time.Duration, error) { return lifeDirect(ctx, s, s.filtered) },
	},
	{
		name: "life/client", what: "create, start, exit and delete of `true` with its own shim; client", slow: true, ownShim: true,
		run: lifeClient,
	},
	{
		name: "kill/shim", what: "a signal to the container's first process; task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			return timed(func() error {
				_, err := s.plain.shim.Kill(ctx, &task.KillRequest{ID: s.plain.id, Signal: uint32(harmless)})
				return err
			})
		},
	},
	{
		name: "kill/client", what: "the same through the client",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			return timed(func() error { return s.plain.task.Kill(ctx, harmless) })
		},
	},
	{
		name: "pause/shim", what: "pause and resume; task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			return timed(func() error {
				if _, err := s.plain.shim.Pause(ctx, &task.PauseRequest{ID: s.plain.id}); err != nil {
					return err
				}
				_, err := s.plain.shim.Resume(ctx, &task.ResumeRequest{ID: s.plain.id})
				return err
			})
		},
	},
	{name: "update/shim", what: "update of the memory limit; task API", run: update},
	{
		name: "stats/shim", what: "statistics of a container; task API",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			return timed(func() error {
				_, err := s.plain.shim.Stats(ctx, &task.StatsRequest{ID: s.plain.id})
				return err
			})
		},
	},
	{
		name: "stats/client", what: "the same through the client",
		run: func(ctx context.Context, s *side) (time.Duration, error) {
			return timed(func() error {
				_, err := s.plain.task.Metrics(ctx)
				return err
			})
		},
	},
}

func lifeDirect(ctx context.Context, s *side, p *place) (time.Duration, error) {
	id, dir, err := s.bundle(p, "true")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return timed(func() error { return p.lifeDirect(ctx, id, dir) })
}

func lifeClient(ctx context.Context, s *side) (time.Duration, error) {
	c, err := s.newContainer(ctx, []string{"true"})
	if err != nil {
		return 0, err
	}
	took, err := timed(func() error { return s.lifeClient(ctx, c) })
	if err != nil {
		return 0, err
	}
	return took, c.Delete(ctx, containerd.WithSnapshotCleanup)
}

func update(ctx context.Context, s *side) (time.Duration, error) {
	s.n++
	limit := int64(1<<30 + s.n<<20)
	res, err := typeurl.MarshalAnyToProto(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
	if err != nil {
		return 0, err
	}
	return timed(func() error {
		_, err := s.plain.shim.Update(ctx, &task.UpdateTaskRequest{ID: s.plain.id, Resources: res})
		return err
	})
}
