package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// summary describes the durations of one side.
type summary struct {
	Min    time.Duration `json:"min_ns"`
	Lower  time.Duration `json:"p25_ns"`
	Median time.Duration `json:"median_ns"`
	Upper  time.Duration `json:"p75_ns"`
	High   time.Duration `json:"p95_ns"`
	Max    time.Duration `json:"max_ns"`
	// CPU is the mean CPU time of the shim and the processes that it started,
	// in steps of the kernel's clock tick (10 ms) over all measurements. It is
	// less sensitive than the rest to what else the machine does.
	CPU time.Duration `json:"cpu_ns"`
}

// ratio is how many times faster ibex is. Median and Min compare these of the
// two sides; Lower and Upper are quartiles of the neighbouring pairs.
type ratio struct {
	Median, Min, Lower, Upper float64
}

type rowReport struct {
	Name, What string
	Ibex, Runc summary
	Ratio      ratio
	Target     float64 `json:",omitempty"`
}

// memoryReport compares sizes in KiB.
type memoryReport struct {
	Name, What string
	Ibex, Runc int
	Ratio      float64
}

type report struct {
	Machine string
	// The load averages of one minute: how much else the machine did.
	LoadBefore, LoadAfter string
	Began                 time.Time
	N                     int
	Rows                  []rowReport
	Memory                []memoryReport
}

// find returns the row of that name, or one that is not in the report.
func (r *report) find(name string) *rowReport {
	for i := range r.Rows {
		if r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return &rowReport{}
}

func (r *report) setMemory(name, what string, side, value int) {
	i := slices.IndexFunc(r.Memory, func(m memoryReport) bool { return m.Name == name })
	if i < 0 {
		i = len(r.Memory)
		r.Memory = append(r.Memory, memoryReport{Name: name, What: what})
	}
	m := &r.Memory[i]
	if side == 0 {
		m.Ibex = value
	} else {
		m.Runc = value
	}
	if m.Ibex > 0 {
		m.Ratio = float64(m.Runc) / float64(m.Ibex)
	}
}

func quantile[T any](sorted []T, q float64) T {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func summarize(d []time.Duration) summary {
	s := slices.Sorted(slices.Values(d))
	return summary{
		Min: s[0], Lower: quantile(s, 0.25), Median: quantile(s, 0.5), Upper: quantile(s, 0.75),
		High: quantile(s, 0.95), Max: s[len(s)-1],
	}
}

func ratios(a, b []time.Duration) ratio {
	pairs := make([]float64, len(a))
	for i := range a {
		pairs[i] = float64(b[i]) / float64(a[i])
	}
	slices.Sort(pairs)
	sa, sb := summarize(a), summarize(b)
	return ratio{
		Median: float64(sb.Median) / float64(sa.Median), Min: float64(sb.Min) / float64(sa.Min),
		Lower: quantile(pairs, 0.25), Upper: quantile(pairs, 0.75),
	}
}

// short prints a duration with three digits.
func short(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.0f µs", ms*1000)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}

// print writes everything.
func (r *report) print(w io.Writer) {
	fmt.Fprintln(w)
	r.table(w)
	fmt.Fprintln(w)
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%-20s %s\n", row.Name, row.What)
	}
	for _, m := range r.Memory {
		fmt.Fprintf(w, "%-20s %s\n", m.Name, m.What)
	}
}

// replaceIn puts the table between two marks in a file.
func (r *report) replaceIn(path string) error {
	const from, to = "<!-- bench -->\n", "<!-- /bench -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), from)
	_, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %q and %q", path, from, to)
	}
	var b strings.Builder
	b.WriteString(before + from)
	r.table(&b)
	b.WriteString(to + after)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// table writes the figures, as Markdown that is also readable as it is.
func (r *report) table(w io.Writer) {
	fmt.Fprintf(w, "%s; load before and after: %s, %s; %d measurements a side (half for whole lives), after 3 that do not count\n\n",
		r.Machine, r.LoadBefore, r.LoadAfter, r.N)
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| row\t| ibex median (min, p95)\t| runc median (min, p95)\t| ratio (quartiles; of minima)\t| target\t| CPU\t|")
	fmt.Fprintln(tw, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	side := func(s summary) string {
		return fmt.Sprintf("%s (%s, %s)", short(s.Median), short(s.Min), short(s.High))
	}
	for _, row := range r.Rows {
		target := ""
		if row.Target > 0 {
			target = fmt.Sprintf("%gx", row.Target)
			if row.Ratio.Median < row.Target {
				target += " missed"
			}
		}
		cpu := ""
		if row.Ibex.CPU > 0 {
			cpu = fmt.Sprintf("%s, %s", short(row.Ibex.CPU), short(row.Runc.CPU))
		}
		fmt.Fprintf(tw, "| %s\t| %s\t| %s\t| %.1fx (%.1f-%.1f; %.1f)\t| %s\t| %s\t|\n", row.Name, side(row.Ibex), side(row.Runc),
			row.Ratio.Median, row.Ratio.Lower, row.Ratio.Upper, row.Ratio.Min, target, cpu)
	}
	for _, m := range r.Memory {
		fmt.Fprintf(tw, "| %s\t| %d KiB\t| %d KiB\t| %.1fx\t| \t| \t|\n", m.Name, m.Ibex, m.Runc, m.Ratio)
	}
	tw.Flush()
}

// check tells which targets are missed.
func (r *report) check(targets map[string]float64) error {
	var errs []error
	for name, want := range targets {
		have := r.find(name).Ratio.Median
		for _, m := range r.Memory {
			if m.Name == name {
				have = m.Ratio
			}
		}
		if have > 0 && have < want {
			errs = append(errs, fmt.Errorf("%s: %.1fx, target %gx", name, have, want))
		}
	}
	return errors.Join(errs...)
}

// parseTargets reads lines of a row's name and the least ratio.
func parseTargets(text string) (map[string]float64, error) {
	targets := map[string]float64{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			return nil, fmt.Errorf("targets.txt: line %q", line)
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil, fmt.Errorf("targets.txt: line %q: %w", line, err)
		}
		targets[f[0]] = v
	}
	return targets, nil
}

// load is the load average of the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// machine describes where the figures come from, in general words.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	cgroups := "cgroup v1"
	if ktest.CgroupV2() {
		cgroups = "cgroup v2"
	} else if slices.ContainsFunc(ktest.CgroupMounts(), func(m ktest.CgroupMount) bool { return m.V2 }) {
		cgroups = "cgroup v1 (hybrid)"
	}
	kind := ""
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if strings.HasPrefix(sc.Text(), "flags") && strings.Contains(sc.Text(), " hypervisor") {
				kind = " virtual"
				break
			}
		}
	}
	release := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	return fmt.Sprintf("%d%s CPUs, %s, Linux %s, %s, %s", runtime.NumCPU(), kind, runtime.GOARCH,
		strings.Join(release[:min(2, len(release))], "."), cgroups, runtime.Version())
}
