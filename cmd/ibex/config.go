package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

func configCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check the node's configuration"}
	cmd.AddCommand(&cobra.Command{
		Use: "check [FILE]", Short: "Check a configuration before shims read it", Args: cobra.MaximumNArgs(1),
		Long: `Check the node's configuration (` + container.NodeConfigPath + `), or a file that is to become it.

Shims read the file again when it changes. One that is wrong changes nothing for those that run
and keeps new ones from starting, so check it before it is put in its place. What is in force is
printed; the exit code is 1 if something is wrong.`,
		Example: "  ibex config check\n  ibex config check /root/new.toml && install -m 644 /root/new.toml " + container.NodeConfigPath,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := container.NodeConfigPath
			if len(args) > 0 {
				path = args[0]
			}
			return checkConfig(cmd.OutOrStdout(), path, len(args) > 0)
		},
	})
	return cmd
}

func checkConfig(to io.Writer, path string, named bool) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	_, err = os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		_, err = fmt.Fprintf(to, "%s is not there: nothing is configured\n", path)
		return err
	}
	if err != nil {
		return err
	}
	c, err := container.CheckNodeConfig(path)
	if err != nil {
		text := strings.TrimSuffix(err.Error(), "; what was in force before stays so")
		return fmt.Errorf("%s; docs/configuration.md lists the keys", text)
	}
	w := tabwriter.NewWriter(to, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "%s is right\n", path)
	caps, who := "not controlled", "-"
	if c.ControlledCaps != nil {
		caps, who = fmt.Sprintf("at most %s", container.CapNames(*c.ControlledCaps)), "userns"
		if *c.ControlledCaps == 0 {
			caps = "none"
		}
	}
	if c.ControlAll {
		who = "all"
	}
	for _, line := range [][2]any{
		{"controlled_userns_caps", caps},
		{"controlled_containers", who},
		{"allow_unsealed", !c.RequireSealed},
		{"ShimCgroup", orDash(c.ShimCgroup)},
		{"IoUid", c.IoUid},
		{"IoGid", c.IoGid},
		{"NoNewKeyring", c.NoNewKeyring},
		{"ExecTreeKill", c.ExecTreeKill},
		{"LogOverflow", orDash(c.LogOverflow)},
		{"LogSpool", c.LogSpool},
	} {
		fmt.Fprintf(w, "  %v\t%v\n", line[0], line[1])
	}
	return w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
