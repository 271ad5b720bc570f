package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ibex-run/ibex/container"
)

// nodeEntry is a container as `ibex ps` lists it.
type nodeEntry struct {
	Namespace string    `json:"namespace"`
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Status    string    `json:"status"`
	Processes int       `json:"processes"`
	Created   time.Time `json:"created"`
	Cgroup    string    `json:"cgroup"`
	Bundle    string    `json:"bundle"`
	Args      []string  `json:"args"`
}

// psNode lists the containers of the node.
func (o *options) psNode(format string) error {
	if format != "table" && format != "json" {
		return fmt.Errorf("--format %q: want table or json", format)
	}
	containers, err := o.node()
	if err != nil {
		return err
	}
	all := []nodeEntry{}
	for _, f := range containers {
		e, err := entryOf(f)
		if err != nil {
			o.logger.warn(err)
			continue
		}
		if e != nil {
			all = append(all, *e)
		}
	}
	if format == "json" {
		return json.NewEncoder(os.Stdout).Encode(all)
	}
	return nodeTable(os.Stdout, all, time.Now())
}

func entryOf(f found) (*nodeEntry, error) {
	v, err := f.look()
	if v == nil || err != nil {
		return nil, err
	}
	defer v.Close()
	status, err := v.Status()
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", f.ID, err)
	}
	pids, err := v.Processes()
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", f.ID, err)
	}
	e := &nodeEntry{
		Namespace: f.Namespace, ID: v.ID, Name: name(v), PID: v.PID, Status: status.String(), Processes: len(pids),
		Created: v.Created, Cgroup: v.Cgroup, Bundle: v.Bundle, Args: v.Args,
	}
	if status == container.Stopped {
		e.PID = 0
	}
	return e, nil
}

// maxCommand cuts what a container runs in a table.
const maxCommand = 40

func nodeTable(to io.Writer, all []nodeEntry, now time.Time) error {
	w := tabwriter.NewWriter(to, 0, 1, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tCONTAINER\tNAME\tPID\tSTATUS\tPROCS\tAGE\tCOMMAND")
	for _, e := range all {
		ns := e.Namespace
		if ns == "" {
			ns = "-"
		}
		command := printable(strings.Join(e.Args, " "))
		if r := []rune(command); len(r) > maxCommand {
			command = string(r[:maxCommand-1]) + "…"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n",
			ns, short(e.ID), printable(e.Name), e.PID, e.Status, e.Processes, age(now.Sub(e.Created)), command)
	}
	return w.Flush()
}

// printable replaces what would move a terminal's cursor: names and arguments are
// their tenants'.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' {
			return '?'
		}
		return r
	}, s)
}

// age prints a time as people say it: 42s, 7m, 3h, 12d.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
