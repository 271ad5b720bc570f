package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// statsFlags are those of `ibex stats`.
type statsFlags struct {
	once, json bool
	sort       string
	interval   time.Duration
	namespace  string
}

func statsCmd(o *options) *cobra.Command {
	var f statsFlags
	cmd := &cobra.Command{
		Use:   "stats [flags] [ID...]",
		Short: "Show what the containers of the node use, live",
		Long: `Show what the containers of the node use, live: all of them, those of shims and of the command
line, or those named.

What is shown is read from the kernel; containerd is not asked, and no shim. Processor time is
in percent of one processor, memory the working set (what is used without inactive file pages),
pressure the part of the last 10 seconds in which some process waited. The live table ends with
Ctrl-C.`,
		Example: "  ibex stats\n  ibex stats --sort mem\n  ibex stats --once --json | jq '.[] | select(.oom_kills > 0) | .name'\n  ibex stats -n k8s.io --interval 5s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			w := &watcher{o: o, f: f, only: args, all: map[string]*watched{}}
			defer w.close()
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			return w.run(ctx, cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.once, "once", false, "one table, after two readings an interval apart")
	fl.BoolVar(&f.json, "json", false, "as JSON: with --once one array, else one array a line for each reading")
	fl.StringVarP(&f.sort, "sort", "s", "cpu", "order: "+strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	fl.DurationVar(&f.interval, "interval", time.Second, "time between readings")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "only those of this namespace of containerd's")
	return cmd
}

// minInterval is long enough for a rate to mean something.
const minInterval = 100 * time.Millisecond

func (f *statsFlags) check() error {
	if orders[f.sort] == nil {
		return fmt.Errorf("--sort %q: want one of %s", f.sort, strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
	}
	if f.interval < minInterval {
		return fmt.Errorf("--interval %v: want at least %v", f.interval, minInterval)
	}
	return nil
}

// watcher follows the containers of the node.
type watcher struct {
	o    *options
	f    statsFlags
	only []string
	all  map[string]*watched // by their state directories
}

func (w *watcher) close() {
	for _, c := range w.all {
		c.view.Close()
	}
}

// run shows readings until ctx ends.
func (w *watcher) run(ctx context.Context, to io.Writer) error {
	if err := w.resolve(); err != nil {
		return err
	}
	if _, err := w.read(); err != nil {
		return err
	}
	tick := time.NewTicker(w.f.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := w.read()
		if err != nil {
			return err
		}
		if err := w.show(to, all); err != nil || w.f.once {
			return err
		}
	}
}

// resolve makes whole IDs of what was asked for.
func (w *watcher) resolve() error {
	for i, id := range w.only {
		f, err := w.o.find(id)
		if err != nil {
			return err
		}
		w.only[i] = f.State
	}
	return nil
}

// read finds the containers that came, lets those go that went, and reads all.
func (w *watcher) read() ([]usage, error) {
	containers, err := w.o.node()
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	all := []usage{}
	for _, f := range containers {
		if w.f.namespace != "" && f.Namespace != w.f.namespace || len(w.only) > 0 && !slices.Contains(w.only, f.State) {
			continue
		}
		c, err := w.follow(f)
		if err != nil {
			w.o.logger.warn(err)
			continue
		}
		if c == nil {
			continue
		}
		here[f.State] = true
		u, ok, err := c.take(time.Now())
		if errors.Is(err, container.ErrNotFound) {
			here[f.State] = false // it will be looked at anew
			continue
		}
		if err != nil {
			w.o.logger.warn(fmt.Errorf("container %s: %w", f.ID, err))
			continue
		}
		if ok {
			all = append(all, u)
		}
	}
	for state, c := range w.all {
		if !here[state] {
			c.view.Close()
			delete(w.all, state)
		}
	}
	sorted(all, w.f.sort)
	return all, nil
}

// follow gives the container that is in f's place now.
func (w *watcher) follow(f found) (*watched, error) {
	if c := w.all[f.State]; c != nil && c.view.Same() {
		return c, nil
	}
	if c := w.all[f.State]; c != nil {
		c.view.Close()
		delete(w.all, f.State)
	}
	v, err := f.look()
	if v == nil || err != nil {
		return nil, err
	}
	c := &watched{found: f, view: v}
	w.all[f.State] = c
	return c, nil
}

// show prints a reading: over the one before where that is a terminal.
func (w *watcher) show(to io.Writer, all []usage) error {
	var out bytes.Buffer
	if w.f.json {
		e := json.NewEncoder(&out)
		if w.f.once {
			e.SetIndent("", "  ")
		}
		if err := e.Encode(all); err != nil {
			return err
		}
		_, err := to.Write(out.Bytes())
		return err
	}
	rows, columns, live := 0, 0, false
	if f, ok := to.(*os.File); ok && !w.f.once {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			rows, columns, live = int(size.Row), int(size.Col), true
		}
	}
	if err := usageTable(&out, all); err != nil {
		return err
	}
	text := out.String()
	if live {
		// ECMA-48: home, then each line with what was behind it erased, then the rest.
		text = "\x1b[H" + strings.ReplaceAll(fit(text, rows, columns), "\n", "\x1b[K\n") + "\x1b[J"
	} else if !w.f.once {
		text += "\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

// fit cuts a table to a screen; 0 is as large as it likes to be.
func fit(text string, rows, columns int) string {
	lines := strings.SplitAfter(text, "\n")
	if rows > 1 && len(lines) > rows {
		lines = append(lines[:rows-2], fmt.Sprintf("… %d more\n", len(lines)-1-(rows-2)))
	}
	for i, l := range lines {
		if r := []rune(strings.TrimSuffix(l, "\n")); columns > 0 && len(r) > columns {
			lines[i] = string(r[:columns]) + "\n"
		}
	}
	return strings.Join(lines, "")
}

func usageTable(to io.Writer, all []usage) error {
	w := tabwriter.NewWriter(to, 0, 1, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tCONTAINER\tCPU%\tTHROTTLED\tMEMORY\tLIMIT\tMEM%\tPIDS\tREAD/s\tWRITE/s\tWAIT CPU\tMEM\tI/O\tOOM\tSTATUS")
	for _, u := range all {
		ns, limit, share := u.Namespace, "-", "-"
		if ns == "" {
			ns = "-"
		}
		if u.LimitBytes > 0 {
			limit, share = bytesText(float64(u.LimitBytes)), fmt.Sprintf("%.0f%%", u.share())
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f\t%.0f%%\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n",
			ns, printable(u.Name), u.CPUPercent, u.ThrottledPercent, bytesText(float64(u.MemoryBytes)), limit, share, u.Pids,
			bytesText(u.ReadRate), bytesText(u.WriteRate),
			percent(u.CPUPressure), percent(u.MemoryPressure), percent(u.IOPressure), u.OOMKills, u.Status)
	}
	return w.Flush()
}

func percent(p *float64) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *p)
}
