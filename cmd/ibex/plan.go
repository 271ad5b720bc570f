package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

func planCmd(o *options) *cobra.Command {
	var exec string
	var full, terse bool
	cmd := &cobra.Command{
		Use:   "plan [flags] BUNDLE | plan [flags] --exec CONTAINER -- COMMAND [ARG...]",
		Short: "Show the steps that would start a process, and start none",
		Long: `Show the steps that would start a process, and start none.

The configuration is checked and everything is looked up as it would be in earnest, with the
same errors: a plan that is printed is one that would be tried. Lines with "#" say what the
steps below them are for. What is not shown are values of environment variables and the text of
seccomp filters; --full shows them. The form is described in docs/plan.md.`,
		Example: "  ibex plan /srv/web\n  ibex plan --terse /srv/web > a.txt\n  ibex plan --exec web1 -- ls -l /",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case exec == "" && len(args) != 1:
				return fmt.Errorf("want one BUNDLE, got %d arguments; see ibex plan --help", len(args))
			case exec != "" && len(args) == 0:
				return errors.New("no command: write it behind --, as in ibex plan --exec web1 -- ls -l")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := o.plan(cmd, exec, args)
			if err != nil {
				return withCode(err, 1)
			}
			return printPlan(cmd.OutOrStdout(), p, full, terse)
		},
	}
	cmd.Flags().StringVar(&exec, "exec", "", "container to start one more process in, by ID, also one of containerd's")
	cmd.Flags().BoolVar(&full, "full", false, "show what may be secret or long, too")
	cmd.Flags().BoolVar(&terse, "terse", false, "the steps alone, as golden files have them")
	return cmd
}

func (o *options) plan(cmd *cobra.Command, id string, args []string) (*container.Planned, error) {
	if id == "" {
		bundle, err := filepath.Abs(args[0])
		if err != nil {
			return nil, err
		}
		terminal, err := container.WantsTerminal(bundle)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(bundle)
		return container.PlanCreate(cmd.Context(), container.CreateOptions{ID: name, Bundle: bundle, Terminal: terminal})
	}
	found, err := o.find(id)
	if err != nil {
		return nil, err
	}
	c, err := container.Open(found.State)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	spec, err := (&execFlags{}).spec(c, args)
	if err != nil {
		return nil, err
	}
	return c.PlanExec(spec)
}

func printPlan(to io.Writer, p *container.Planned, full, terse bool) (err error) {
	switch {
	case terse && full:
		_, err = fmt.Fprint(to, p.Steps.Text())
	case terse:
		_, err = fmt.Fprint(to, p.Steps.String())
	default:
		_, err = fmt.Fprintf(to, "%v%s", p, p.Steps.Explain(full))
	}
	return err
}
