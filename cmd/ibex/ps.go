package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

func psCmd(o *options) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "ps [flags] [ID [PS-OPTIONS]]",
		Short: "List the containers of the node, or the processes of one",
		Long: `List the containers of the node, or the processes of one.

Without an ID these are the containers of the command line and those of all shims, as their
records and the kernel have them; containerd is not asked.`,
		Example: "  ibex ps\n  ibex ps -f json | jq -r '.[] | select(.status == \"paused\") | .id'\n  ibex ps web1\n  ibex ps web1 -eo pid,rss,args",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return o.psNode(format)
			}
			return o.psOne(args[0], format, args[1:])
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&format, "format", "f", "table", "table or json")
	return cmd
}

// psOne lists the processes of a container.
func (o *options) psOne(id, format string, args []string) error {
	f, err := o.find(id)
	if err != nil {
		return err
	}
	v, err := container.Look(f.State)
	if err != nil {
		return err
	}
	defer v.Close()
	pids, err := v.Processes()
	if err != nil {
		return err
	}
	if pids == nil {
		pids = []int{}
	}
	switch format {
	case "json":
		return json.NewEncoder(os.Stdout).Encode(pids)
	case "table":
		return psTable(pids, args)
	}
	return fmt.Errorf("--format %q: want table or json", format)
}

// psPaths is where ps(1) is. Nothing is looked up in PATH: we are root.
var psPaths = []string{"/usr/bin/ps", "/bin/ps"}

// psTable prints the lines of ps(1) that are about pids.
func psTable(pids []int, args []string) error {
	if len(args) == 0 {
		args = []string{"-ef"}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	var p *os.Process
	for _, path := range psPaths {
		p, err = os.StartProcess(path, append([]string{"ps"}, args...), &os.ProcAttr{
			Env: os.Environ(), Files: []*os.File{nil, w, os.Stderr},
		})
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	w.Close()
	if err != nil {
		return fmt.Errorf("list processes with ps(1): %w", err)
	}
	if err := filterPS(os.Stdout, r, pids); err != nil {
		return err
	}
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = fmt.Errorf("ps(1): %v", st)
	}
	return err
}

// filterPS copies the heading and the lines whose column PID has one of pids.
func filterPS(to io.Writer, from io.Reader, pids []int) error {
	wanted := map[string]bool{}
	for _, pid := range pids {
		wanted[strconv.Itoa(pid)] = true
	}
	in := bufio.NewScanner(from)
	column := -1
	for in.Scan() {
		fields := strings.Fields(in.Text())
		if column < 0 {
			for i, f := range fields {
				if f == "PID" {
					column = i
				}
			}
			if column < 0 {
				io.Copy(io.Discard, from) //nolint:errcheck // so that ps ends
				return errors.New("ps(1): its output has no column PID")
			}
		} else if len(fields) <= column || !wanted[fields[column]] {
			continue
		}
		if _, err := fmt.Fprintln(to, in.Text()); err != nil {
			return err
		}
	}
	return in.Err()
}
