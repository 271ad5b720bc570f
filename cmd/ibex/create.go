package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// createFlags are those of create and run.
type createFlags struct {
	handOver
	bundle                string
	noPivot, noNewKeyring bool
	noSubreaper           bool
	preserveFDs           int
	detach, keep          bool
}

func (f *createFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.bundle, "bundle", "b", "", "directory of the bundle (default: the present one)")
	f.handOver.add(fl)
	fl.BoolVar(&f.noPivot, "no-pivot", false, "refused: the root is always entered with pivot_root")
	fl.BoolVar(&f.noNewKeyring, "no-new-keyring", false, "keep the caller's session keyring")
	fl.IntVar(&f.preserveFDs, "preserve-fds", 0, "pass this many further descriptors on, besides those of LISTEN_FDS")
}

func createCmd(o *options) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "create [flags] ID", Short: "Create a container", Args: cobra.ExactArgs(1),
		Example: "  ibex create -b /srv/web web1 && ibex start web1",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.create(cmd.Context(), o, args[0], true)
			if err == nil {
				c.Close()
			}
			return withCode(err, 1)
		},
	}
	f.add(cmd)
	return cmd
}

func runCmd(o *options) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "run [flags] ID", Short: "Create and start a container", Args: cobra.ExactArgs(1),
		Example: "  ibex run -b /srv/web web1; echo $?",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withCode(f.run(cmd.Context(), o, args[0]), 1)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "do not wait for the container's end")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "do not delete the container when it ends")
	cmd.Flags().BoolVar(&f.noSubreaper, "no-subreaper", false, "accepted: orphans of the container are not adopted")
	return cmd
}

// create creates the container. The caller's own standard streams become the
// container's, unless it has a terminal.
func (f *createFlags) create(ctx context.Context, o *options, id string, detached bool) (_ *container.Container, err error) {
	if f.noPivot {
		return nil, errors.New("--no-pivot: not supported: a process could leave such a root")
	}
	bundle, err := filepath.Abs(f.bundle)
	if err != nil {
		return nil, err
	}
	dir, err := o.dir(id)
	if err != nil {
		return nil, err
	}
	terminal, err := container.WantsTerminal(bundle)
	if err != nil {
		return nil, err
	}
	if err := f.checkConsole(terminal, detached); err != nil {
		return nil, err
	}
	extra, env, err := extraFDs(f.preserveFDs, true)
	if err != nil {
		return nil, err
	}
	if err := makeStateDir(dir, id); err != nil {
		return nil, err
	}
	c, err := container.Create(ctx, container.CreateOptions{
		ID: id, Bundle: bundle, StateDir: dir, Detached: true, Terminal: terminal, NoNewKeyring: f.noNewKeyring,
		Stdio:     container.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Extra: extra},
		Env:       env,
		OnWarning: o.logger.warn,
	})
	if err != nil {
		os.Remove(dir) //nolint:errcheck // the cause is what is reported
		return nil, err
	}
	if flags, ok := c.SeccompFlags(); ok {
		o.logger.debugf("seccomp filter flags: %d", flags)
	}
	if err := f.give(c.Init()); err != nil {
		o.logger.debugf("deleting the container, its owner cannot be told of it")
		c.Kill(ctx, unix.SIGKILL) //nolint:errcheck // Delete reports
		<-c.Init().Done()
		c.Delete(ctx)  //nolint:errcheck // the cause is what is reported
		os.Remove(dir) //nolint:errcheck // as above
		return nil, err
	}
	return c, nil
}

// makeStateDir makes a container's directory, and by that takes its ID.
func makeStateDir(dir, id string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o711)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("container with given ID already exists: %q", id)
	}
	return err
}

func (f *createFlags) run(ctx context.Context, o *options, id string) error {
	c, err := f.create(ctx, o, id, f.detach)
	if err != nil {
		return err
	}
	dir, _ := o.dir(id) // checked by create
	remove := func() error {
		c.Kill(ctx, unix.SIGKILL) //nolint:errcheck // Delete reports
		<-c.Init().Done()
		return errors.Join(c.Delete(ctx), os.Remove(dir))
	}
	var terminal *terminal
	if m := c.Init().Console(); m != nil && f.console == "" {
		if terminal, err = attach(c.Init(), m); err != nil {
			remove() //nolint:errcheck // the cause is what is reported
			return err
		}
		defer terminal.restore()
	}
	if err := c.Init().Start(ctx, container.Stdio{}); err != nil {
		terminal.restore()
		remove() //nolint:errcheck // the cause is what is reported
		return err
	}
	if f.detach {
		c.Close()
		return nil
	}
	code := wait(c.Init(), terminal)
	if !f.keep {
		if err := remove(); err != nil {
			o.logger.warn(err)
		}
	}
	if code != 0 {
		return exitError{code}
	}
	return nil
}
