// Bench measures the shim of this module beside containerd-shim-runc-v2 with
// runc, on the same containerd, image and spec. The two take turns: A B A B.
//
// It prints one table and writes out/bench.json. With -check it fails when a
// ratio is below its target in targets.txt.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

//go:embed targets.txt
var targetsText string

type options struct {
	n     int
	only  string
	out   string
	doc   string
	check bool
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 60, "measurements of each row and side")
	flag.StringVar(&o.only, "only", "", "rows whose name holds this")
	flag.StringVar(&o.out, "out", "out/bench.json", "where the figures go")
	flag.StringVar(&o.doc, "doc", "", "Markdown file in which the table between <!-- bench --> and <!-- /bench --> is replaced")
	flag.BoolVar(&o.check, "check", false, "fail when a ratio is below its target")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// say prints a line about the progress, with the seconds since the start.
var say = func() func(string, ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}()

func run(o options) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("needs root")
	}
	targets, err := parseTargets(targetsText)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	scratch, err := ktest.NewScratch("ibex-bench-")
	if err != nil {
		return fmt.Errorf("clean up after earlier runs: %w", err)
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	d, err := prepare(ctx, scratch)
	if err != nil {
		return err
	}
	defer d.Stop()
	sides := []*side{{name: "ibex", runtime: ctd.Runtime, d: d}, {name: "runc", runtime: ctd.Incumbent, d: d}}
	for _, s := range sides {
		if err := s.begin(d.Context(ctx)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer s.end()
	}
	rep := report{Machine: machine(), LoadBefore: load(), N: o.n, Began: time.Now().UTC()}
	if err := measure(d.Context(ctx), o, sides, &rep); err != nil {
		return err
	}
	rep.LoadAfter = load()
	for _, r := range rows {
		rep.find(r.name).Target = targets[r.name]
	}
	rep.print(os.Stdout)
	if err := rep.write(o.out); err != nil {
		return err
	}
	if o.doc != "" {
		if err := rep.replaceIn(o.doc); err != nil {
			return err
		}
	}
	if o.check {
		return rep.check(targets)
	}
	return nil
}

// prepare builds what is needed and starts containerd.
func prepare(ctx context.Context, scratch *ktest.Scratch) (*ctd.Daemon, error) {
	bin := filepath.Join(scratch.Dir, "bin")
	if err := os.Mkdir(bin, 0o711); err != nil {
		return nil, err
	}
	say("linking containerd, its shim and runc; building ibex")
	if err := ctd.Link(bin, "containerd", "containerd-shim-runc-v2", "runc"); err != nil {
		return nil, err
	}
	if err := ctd.BuildShim(bin); err != nil {
		return nil, err
	}
	tarFile := filepath.Join(scratch.Dir, "image.tar")
	f, err := os.Create(tarFile)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ctd.WriteImage(f, bin), f.Close()); err != nil {
		return nil, err
	}
	d, err := ctd.Start(ctx, ctd.Options{Scratch: scratch, Name: "main", Bin: bin})
	if err != nil {
		return nil, err
	}
	return d, d.Import(ctx, tarFile)
}

// measure runs the rows one after another, each with the sides in turn.
func measure(ctx context.Context, o options, sides []*side, rep *report) error {
	began := time.Now()
	for i, r := range rows {
		if !strings.Contains(r.name, o.only) {
			continue
		}
		n := o.n
		if r.slow {
			n = max(o.n/2, 1)
		}
		out := rowReport{Name: r.name, What: r.what}
		samples := make([][]time.Duration, len(sides))
		cpu := []time.Duration{sides[0].cpu(), sides[1].cpu()}
		// The first ones of each side warm caches and are not counted.
		for k := -3; k < n; k++ {
			for j, s := range sides {
				took, err := r.run(ctx, s)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, s.name, err)
				}
				if k < 0 {
					continue
				}
				samples[j] = append(samples[j], took)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		out.Ibex, out.Runc = summarize(samples[0]), summarize(samples[1])
		out.Ratio = ratios(samples[0], samples[1])
		if !r.ownShim {
			out.Ibex.CPU = (sides[0].cpu() - cpu[0]) / time.Duration(n+3)
			out.Runc.CPU = (sides[1].cpu() - cpu[1]) / time.Duration(n+3)
		}
		rep.Rows = append(rep.Rows, out)
		left := time.Duration(float64(time.Since(began)) / float64(i+1) * float64(len(rows)-i-1))
		say("%d of %d: %-34s %s against %s; about %v left", i+1, len(rows), r.name, short(out.Ibex.Median), short(out.Runc.Median), left.Round(time.Second))
	}
	if o.only == "" || strings.Contains("memory", o.only) {
		say("memory of the shims, smallest limits")
		return measureMemory(ctx, sides, rep)
	}
	return nil
}

func (r *report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	say("figures: %s", path)
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
