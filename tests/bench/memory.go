package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// private is the memory of a process that no other shares, in KiB: what would
// be free without it. proc_pid_smaps_rollup(5).
func private(pid int) (kib int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var n int
		if name, rest, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Private_") {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				kib += n
			}
		}
	}
	return kib, nil
}

// measureMemory fills the rows of memory. Each side gets a new shim.
func measureMemory(ctx context.Context, sides []*side, rep *report) error {
	for j, s := range sides {
		p, err := s.newPlace(ctx, "memory")
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := s.memorySteps(ctx, p, rep, j); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		p.end(ctx)
		limit, err := s.smallestLimit(ctx)
		if err != nil {
			return fmt.Errorf("%s: smallest limit: %w", s.name, err)
		}
		rep.setMemory("limit/smallest", "smallest memory limit under which `true` starts, KiB", j, limit>>10)
	}
	return nil
}

func (s *side) memorySteps(ctx context.Context, p *place, rep *report, j int) error {
	note := func(name, what string) error {
		kib, err := private(p.shimPID)
		rep.setMemory(name, what, j, kib)
		return err
	}
	if err := note("memory/start", "private memory of a shim after one container, KiB"); err != nil {
		return err
	}
	for range 100 {
		if err := p.execDirect(ctx, s.id(), p.process); err != nil {
			return err
		}
	}
	if err := note("memory/100-execs", "the same after 100 execs"); err != nil {
		return err
	}
	for range 1000 {
		if _, err := p.shim.Stats(ctx, &task.StatsRequest{ID: p.id}); err != nil {
			return err
		}
	}
	return note("memory/1000-stats", "the same after 1000 statistics more")
}

// smallestLimit finds by trying the smallest memory limit in bytes under which
// a container gets to run true.
func (s *side) smallestLimit(ctx context.Context) (int, error) {
	for _, kib := range []int{256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768} {
		limit := int64(kib) << 10
		good := 0
		for range 3 {
			err := s.tryLimit(ctx, limit)
			if err != nil {
				break
			}
			good++
		}
		if good == 3 {
			return int(limit), nil
		}
	}
	return 0, errors.New("none up to 32 MiB")
}

func (s *side) tryLimit(ctx context.Context, limit int64) error {
	c, err := s.newContainer(ctx, []string{"true"}, func(_ context.Context, _ oci.Client, _ *container, spec *oci.Spec) error {
		spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
		return nil
	})
	if err != nil {
		return err
	}
	defer c.Delete(ctx)
	t, err := c.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	ch, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	if err := t.Start(ctx); err != nil {
		_, derr := t.Delete(ctx)
		return errors.Join(err, derr)
	}
	select {
	case st := <-ch:
		_, err = t.Delete(ctx)
		if st.ExitCode() != 0 {
			err = errors.Join(err, fmt.Errorf("exit code %d", st.ExitCode()))
		}
		return err
	case <-time.After(10 * time.Second):
		return errors.New("it hangs")
	}
}
