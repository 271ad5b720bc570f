package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// verb makes a command that works on one container.
func (o *options) verb(use, short string, run func(ctx context.Context, c *container.Container, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			return run(cmd.Context(), c, args[1:])
		},
	}
}

func startCmd(o *options) *cobra.Command {
	return o.verb("start ID", "Start a created container", func(ctx context.Context, c *container.Container, _ []string) error {
		return c.Init().Start(ctx, container.Stdio{})
	})
}

func pauseCmd(o *options) *cobra.Command {
	return o.verb("pause ID", "Freeze a container", func(ctx context.Context, c *container.Container, _ []string) error {
		return c.Pause(ctx)
	})
}

func resumeCmd(o *options) *cobra.Command {
	return o.verb("resume ID", "Thaw a container", func(ctx context.Context, c *container.Container, _ []string) error {
		return c.Resume(ctx)
	})
}

func killCmd(o *options) *cobra.Command {
	var all bool
	cmd := o.verb("kill [flags] ID [SIGNAL]", "Send a signal, SIGTERM if none is named", func(ctx context.Context, c *container.Container, args []string) error {
		name := "TERM"
		if len(args) > 0 {
			name = args[0]
		}
		sig, err := parseSignal(name)
		if err != nil {
			return err
		}
		return kill(ctx, c, sig, all)
	})
	cmd.Flags().BoolVarP(&all, "all", "a", false, "to every process of the container")
	return cmd
}

// kill signals the first process, or all. Where the PID namespace is shared, the
// others do not end with the first one: then SIGKILL is for all.
func kill(ctx context.Context, c *container.Container, sig unix.Signal, all bool) error {
	stopped := c.Init().Status() == container.Stopped
	if all || sig == unix.SIGKILL && !ownPIDs(c.Spec()) {
		err := c.Kill(ctx, sig)
		if stopped && errors.Is(err, container.ErrNotFound) {
			return nil
		}
		return err
	}
	if err := c.Init().Kill(sig); !errors.Is(err, container.ErrNotFound) {
		return err
	}
	return errors.New("container not running")
}

// ownPIDs reports whether a container has a new PID namespace.
func ownPIDs(s *specs.Spec) bool {
	for _, n := range s.Linux.Namespaces {
		if n.Type == specs.PIDNamespace {
			return n.Path == ""
		}
	}
	return false
}

// parseSignal takes a number, or a name with or without "SIG".
func parseSignal(s string) (unix.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil {
		if n < 0 || n > 64 {
			return 0, fmt.Errorf("signal %d: not between 0 and 64", n)
		}
		return unix.Signal(n), nil
	}
	if sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("unknown signal %q", s)
}

func deleteCmd(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "delete [flags] ID...", Short: "Delete containers that have ended", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, id := range args {
				errs = append(errs, o.delete(cmd.Context(), id, force))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill the container if it runs; one that is not there is no error")
	return cmd
}

// deleteTimeout bounds the wait for a killed container.
const deleteTimeout = 10 * time.Second

func (o *options) delete(ctx context.Context, id string, force bool) error {
	dir, err := o.dir(id)
	if err != nil {
		return err
	}
	c, err := o.open(id)
	if err != nil {
		// An empty directory is of a create that was cut short.
		if e := os.Remove(dir); force && (e == nil || errors.Is(e, os.ErrNotExist)) {
			return nil
		}
		return err
	}
	if s := c.Init().Status(); s != container.Stopped {
		if !force {
			c.Close()
			return fmt.Errorf("cannot delete container %s that is not stopped: %s", id, s)
		}
		c.Kill(ctx, unix.SIGKILL) //nolint:errcheck // judged by what is left below
		c.Close()
		if c, err = o.stopped(id); err != nil {
			return err
		}
	}
	defer c.Close()
	if err := c.Delete(ctx); err != nil {
		return err
	}
	return os.Remove(dir)
}

// stopped opens a container once it has ended.
func (o *options) stopped(id string) (*container.Container, error) {
	for end := time.Now().Add(deleteTimeout); ; {
		c, err := o.open(id)
		if err != nil || c.Init().Status() == container.Stopped {
			return c, err
		}
		c.Close()
		if time.Now().After(end) {
			return nil, fmt.Errorf("container %q did not end in %v", id, deleteTimeout)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// state is what `state` prints, with what others add to the specification's, in
// their order.
type state struct {
	Version     string               `json:"ociVersion"`
	ID          string               `json:"id"`
	PID         int                  `json:"pid"`
	Status      specs.ContainerState `json:"status"`
	Bundle      string               `json:"bundle"`
	Rootfs      string               `json:"rootfs"`
	Created     time.Time            `json:"created"`
	Annotations map[string]string    `json:"annotations,omitempty"`
	Owner       string               `json:"owner"`
}

func stateOf(c *container.Container) state {
	spec := c.Spec()
	s := state{
		Version: spec.Version, ID: c.ID(), PID: c.Init().PID(), Status: specs.ContainerState(c.Init().Status().String()),
		Bundle: c.Bundle(), Rootfs: c.RootPath(), Created: c.Created(), Annotations: spec.Annotations, Owner: "root",
	}
	if s.Status == specs.StateStopped {
		s.PID = 0
	}
	return s
}

func stateCmd(o *options) *cobra.Command {
	return o.verb("state ID", "Show the state of a container", func(_ context.Context, c *container.Container, _ []string) error {
		return printJSON(stateOf(c))
	})
}

func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func listCmd(o *options) *cobra.Command {
	var format string
	var quiet bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the containers", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.list(format, quiet)
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "table", "table or json")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "IDs only")
	return cmd
}

func (o *options) list(format string, quiet bool) error {
	entries, err := os.ReadDir(o.root)
	if err != nil {
		return err
	}
	if format != "table" && format != "json" {
		return fmt.Errorf("--format %q: want table or json", format)
	}
	var all []state
	for _, e := range entries {
		c, err := o.open(e.Name())
		if err != nil {
			o.logger.warn(fmt.Errorf("container %q: %w", e.Name(), err))
			continue
		}
		all = append(all, stateOf(c))
		c.Close()
	}
	switch {
	case quiet:
		for _, s := range all {
			fmt.Println(s.ID)
		}
		return nil
	case format == "json":
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	w := tabwriter.NewWriter(os.Stdout, 12, 1, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tPID\tSTATUS\tBUNDLE\tCREATED\tOWNER")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\troot\n", s.ID, s.PID, s.Status, s.Bundle, s.Created.UTC().Format(time.RFC3339Nano))
	}
	return w.Flush()
}

func featuresCmd() *cobra.Command {
	return &cobra.Command{
		Use: "features", Short: "Show what of the specification is there", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return printJSON(container.Features()) },
	}
}
