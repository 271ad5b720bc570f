package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container"
)

func eventsCmd(o *options) *cobra.Command {
	var interval time.Duration
	var once bool
	cmd := o.verb("events [flags] ID", "Show the statistics of a container", func(ctx context.Context, c *container.Container, _ []string) error {
		out := json.NewEncoder(os.Stdout)
		for {
			var s cgroups.Stats
			if err := c.Stats(&s); err != nil {
				return err
			}
			if err := out.Encode(map[string]any{"type": "stats", "id": c.ID(), "data": &s}); err != nil {
				return err
			}
			if once {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(interval):
			}
		}
	})
	cmd.Flags().DurationVar(&interval, "interval", 5*time.Second, "time between readings")
	cmd.Flags().BoolVar(&once, "stats", false, "one reading")
	return cmd
}
