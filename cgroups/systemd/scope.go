package systemd

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
)

// Scope is a transient unit. It holds no connection: each call makes one to
// systemd's own socket, which works without a bus daemon, and closes it.
type Scope struct{ unit cgroups.Unit }

// Options says what to start.
type Options struct {
	// PID is a process to put into the scope, which cannot be without one. It has
	// to live until the container's first process is in; then it may end.
	PID int
	// Resources are told to systemd as far as it has properties for them.
	Resources *specs.LinuxResources
	// Annotations of the container. Those called org.systemd.property.NAME set a
	// property; see annotated.
	Annotations map[string]string
}

// Start makes the scope of a path and waits until it is there. A unit of this
// name that has failed, as one does whose process was OOM-killed, is reset
// first; one that is active is cgroups.ErrBusy. If systemd cannot be reached the
// error is cgroups.ErrSystemd.
func Start(ctx context.Context, p cgroups.Path, o Options) (*Scope, error) {
	u, ok := p.Unit()
	if !ok {
		return nil, fmt.Errorf("start scope of cgroup %s: the path is not systemd's: %w", p, cgroups.ErrInvalid)
	}
	s := &Scope{unit: u}
	if err := s.start(ctx, o); err != nil {
		return nil, fmt.Errorf("start unit %s: %w", u.Name, err)
	}
	return s, nil
}

// Open stands for the scope of a path, whether there is one or not.
func Open(p cgroups.Path) (*Scope, error) {
	u, ok := p.Unit()
	if !ok {
		return nil, fmt.Errorf("open scope of cgroup %s: the path is not systemd's: %w", p, cgroups.ErrInvalid)
	}
	return &Scope{unit: u}, nil
}

func connect(ctx context.Context) (*dbus.Conn, error) {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return nil, errors.Join(cgroups.ErrSystemd, fmt.Errorf("connect to systemd: %w", err))
	}
	return conn, nil
}

func (s *Scope) start(ctx context.Context, o Options) error {
	props, err := startProperties(s.unit, o)
	if err != nil {
		return err
	}
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for try := 0; ; try++ {
		err := job(ctx, func(done chan<- string) error {
			_, err := conn.StartTransientUnitContext(ctx, s.unit.Name, "fail", props, done)
			return err
		})
		if !isError(err, "org.freedesktop.systemd1.UnitExists") {
			return err
		}
		if try > 0 {
			return errors.Join(cgroups.ErrBusy, err)
		}
		// What is left of an earlier container is in the state failed and has no
		// processes. resetting does nothing to an active unit.
		if err := s.reset(ctx, conn); err != nil {
			return err
		}
	}
}

// job runs f and waits for the result of the job that it starts.
func job(ctx context.Context, f func(done chan<- string) error) error {
	done := make(chan string, 1)
	if err := f(done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("the job of systemd ended as %q", result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the job of systemd: %w", ctx.Err())
	}
}

func isError(err error, name string) bool {
	e, ok := errors.AsType[godbus.Error](err)
	return ok && e.Name == name
}

const noSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"

func (s *Scope) reset(ctx context.Context, conn *dbus.Conn) error {
	err := conn.ResetFailedUnitContext(ctx, s.unit.Name)
	if isError(err, noSuchUnit) {
		return nil
	}
	return err
}

// Set tells systemd the properties that res changes. It is called after the
// files were written: systemd writes the same values.
func (s *Scope) Set(ctx context.Context, res *specs.LinuxResources) error {
	props, err := properties(res)
	if err != nil || len(props) == 0 {
		return err
	}
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetUnitPropertiesContext(ctx, s.unit.Name, true, props...); err != nil {
		return fmt.Errorf("set properties of unit %s: %w", s.unit.Name, err)
	}
	return nil
}

// Stop stops the scope, which kills what is left in it, waits for that and
// forgets that it failed, if it did. A scope that is not there is no error.
func (s *Scope) Stop(ctx context.Context) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = job(ctx, func(done chan<- string) error {
		_, err := conn.StopUnitContext(ctx, s.unit.Name, "replace", done)
		return err
	})
	if isError(err, noSuchUnit) {
		err = nil
	}
	if err = errors.Join(err, s.reset(ctx, conn)); err != nil {
		return fmt.Errorf("stop unit %s: %w", s.unit.Name, err)
	}
	return nil
}
