package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Cleanup removes what a container left whose own shim is gone: its processes,
// its cgroup, its record. Mounts need no care: they end with the mount namespace.
// It returns the recorded exit, or 137 at this moment if there was none. Nothing
// to clean up is no error.
func Cleanup(ctx context.Context, stateDir, bundle, id string) (pid int, st ExitStatus, err error) {
	st = ExitStatus{Code: 128 + uint32(unix.SIGKILL), At: time.Now()}
	if stateDir == "" {
		stateDir = bundle
	}
	state, err := pathsafe.OpenState(stateDir)
	if errors.Is(err, unix.ENOENT) {
		return 0, st, nil
	}
	if err != nil {
		return 0, st, fmt.Errorf("clean up container %q: %w", id, err)
	}
	defer state.Close()
	rec, err := loadRecord(state)
	if errors.Is(err, ErrNotFound) {
		return 0, st, nil
	}
	if err == nil && rec.ID != id {
		err = invalid("id", "the record is of container %q", rec.ID)
	}
	if err != nil {
		return 0, st, fmt.Errorf("clean up container %q: %w", id, err)
	}
	if rec.Exit != nil {
		st = ExitStatus{Code: rec.Exit.Code, At: rec.Exit.At}
	}
	if err := rec.remove(ctx); err != nil {
		return rec.PID, st, fmt.Errorf("clean up container %q: %w", id, err)
	}
	if err := state.Unlink(recordName); err != nil {
		return rec.PID, st, fmt.Errorf("clean up container %q: %w", id, err)
	}
	return rec.PID, st, rec.poststop(ctx)
}

// poststop runs the hooks that the lost shim would have run.
func (r *record) poststop(ctx context.Context) error {
	bundle, err := pathsafe.OpenState(r.Bundle)
	if err != nil {
		return fmt.Errorf("read the hooks of container %q: %w", r.ID, err)
	}
	defer bundle.Close()
	spec, err := loadSpec(bundle)
	if err != nil {
		return fmt.Errorf("read the hooks of container %q: %w", r.ID, err)
	}
	return poststop(ctx, hooksOf(spec.Hooks, "poststop"), &specs.State{
		Version: specs.Version, ID: r.ID, Status: specs.StateStopped, Bundle: r.Bundle, Annotations: spec.Annotations,
	})
}

func (r *record) remove(ctx context.Context) error {
	h, err := host()
	if err != nil {
		return err
	}
	if err := r.kill(h); err != nil {
		return err
	}
	p, err := cgroups.ParsePath(r.CgroupsPath, r.ID)
	if err != nil {
		return err
	}
	g, err := openGroup(h.layout, p)
	if errors.Is(err, cgroups.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer g.Close()
	if r.PID == 0 {
		if ours, err := empties(ctx, g); err != nil || !ours {
			return err
		}
	}
	if err := g.Kill(ctx); err != nil {
		return err
	}
	return g.Delete(ctx)
}

// empties waits for the end of the processes in the cgroup of a container that
// was never ready. Those that its creation started end with the one that did it,
// whose word they wait for. If others are there, the cgroup is another
// container's: the record comes before the cgroup, which a creation that was cut
// short there had perhaps yet to be refused.
func empties(ctx context.Context, g group) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	tick := time.NewTicker(emptyTimeout / 100)
	defer tick.Stop()
	for {
		pids, err := g.Procs()
		if err != nil || len(pids) == 0 {
			return err == nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// emptyTimeout bounds the wait for processes that end by themselves.
const emptyTimeout = 2 * time.Second

// kill ends the first process, if it is still the one that was recorded.
func (r *record) kill(h *hostState) error {
	fd, err := r.pidfd(h)
	if err != nil || fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %d: %w", r.PID, err)
	}
	return nil
}

// startTime reads when a process started, in clock ticks since boot.
func startTime(proc *pathsafe.Proc, pidfd, pid int) (uint64, error) {
	st, err := readStat(proc, pidfd, pid)
	return st.start, err
}
