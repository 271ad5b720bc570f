package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// finding is one line of the doctor's report.
type finding struct {
	Area   string `json:"area"` // kernel, cgroups, security, user namespaces
	Check  string `json:"check"`
	State  string `json:"state"` // ok, note, missing
	Detail string `json:"detail,omitempty"`
	// Needed says what does not work without it.
	Needed string `json:"needed,omitempty"`
}

// The states of a finding. Only a missing one makes the command fail.
const (
	stateOK      = "ok"
	stateNote    = "note"
	stateMissing = "missing"
)

func doctorCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this host can run containers, and how well", Args: cobra.NoArgs,
		Long:    "Check whether this host can run containers, and how well.\n\nThe exit code is 0 if they can run, 1 if something is missing that ibex needs. A note is about\nsomething that only some containers need, or that costs time.",
		Example: "  ibex doctor\n  ibex doctor --json | jq '.[] | select(.state != \"ok\")'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := examine()
			if err := report(cmd.OutOrStdout(), all, asJSON); err != nil {
				return err
			}
			for _, f := range all {
				if f.State == stateMissing {
					return exitError{1}
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func examine() []finding {
	var all []finding
	for _, area := range []func() []finding{examineKernel, examineCgroups, examineSecurity, examineUsers} {
		all = append(all, area()...)
	}
	return all
}

func report(to io.Writer, all []finding, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	area := ""
	for _, f := range all {
		if f.Area != area {
			area = f.Area
			w.Flush() //nolint:errcheck // the last one reports
			fmt.Fprintf(to, "%s\n", strings.ToUpper(area))
		}
		detail := f.Detail
		if f.State != stateOK && f.Needed != "" {
			if detail != "" {
				detail += "; "
			}
			detail += "needed for " + f.Needed
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", f.State, f.Check, detail)
	}
	return w.Flush()
}

// readSmall reads a short file of the kernel's. ok is false if it is not there.
func readSmall(name string) (text string, ok bool, err error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	return string(data), err == nil, err
}
