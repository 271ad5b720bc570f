package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container"
)

// event is one line of the output.
type event struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Data any    `json:"data,omitempty"`
}

func eventsCmd(o *options) *cobra.Command {
	var interval time.Duration
	var once bool
	cmd := o.verb("events [flags] ID", "Show statistics and OOM kills of a container until it ends", func(ctx context.Context, c *container.Container, _ []string) error {
		if interval <= 0 {
			return fmt.Errorf("--interval %v: want more than 0", interval)
		}
		if c.Init().Status() == container.Stopped {
			return fmt.Errorf("container with id %s is not running", c.ID())
		}
		e := &eventWriter{c: c, out: json.NewEncoder(os.Stdout)}
		if once {
			return e.stats()
		}
		return e.follow(ctx, interval)
	})
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "time between readings")
	cmd.Flags().BoolVar(&once, "stats", false, "one reading")
	cmd.Example = "  ibex events --stats web1 | jq .data.memory.usage"
	return cmd
}

type eventWriter struct {
	c  *container.Container
	mu sync.Mutex

	out     *json.Encoder  // guarded by mu
	reading *cgroups.Stats // kept: a warm reading allocates nothing
}

func (e *eventWriter) write(kind string, data any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out.Encode(event{kind, e.c.ID(), data})
}

func (e *eventWriter) stats() error {
	if e.reading == nil {
		e.reading = &cgroups.Stats{}
	}
	if err := e.c.Stats(e.reading); err != nil {
		return err
	}
	return e.write("stats", statsOf(e.reading))
}

// follow writes until the first process ends.
func (e *eventWriter) follow(ctx context.Context, interval time.Duration) error {
	end, err := e.c.Init().Pidfd()
	if errors.Is(err, container.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(end)
	if err := e.c.WatchOOM(func() { e.write("oom", nil) }); err != nil { //nolint:errcheck // who closed the pipe sees no more of it
		return err
	}
	for next := time.Now().Add(interval); ctx.Err() == nil; {
		// A pidfd is readable once its process has ended (pidfd_open(2)).
		p := []unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(max(time.Until(next).Milliseconds(), 0)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n > 0:
			return nil
		default:
			if err := e.stats(); err != nil {
				if _, e := unix.Poll(p, 0); e == nil && p[0].Revents != 0 {
					return nil // it ended meanwhile
				}
				return err
			}
			next = next.Add(interval)
		}
	}
	return nil
}
