package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
)

// module is what go test puts before a package's directory.
const module = "github.com/ibex-run/ibex/"

// test names a test or a subtest; pkg is the package's directory in the module.
type test struct{ pkg, name string }

type verdict int

const (
	passed verdict = iota
	failed
	skipped
)

// outcome is what became of a test on one machine. The reason is the last line
// that it logged.
type outcome struct {
	verdict verdict
	reason  string
}

type results struct {
	machines []string
	tests    map[test]map[string]outcome // by machine
	broken   map[string][]string         // packages with a status that is not 0, by machine
	logged   map[test]string             // the last line logged, on the machine being read
}

func newResults() *results {
	return &results{tests: map[test]map[string]outcome{}, broken: map[string][]string{}}
}

func (r *results) add(machine string, t test, v verdict) {
	if r.tests[t] == nil {
		r.tests[t] = map[string]outcome{}
	}
	r.tests[t][machine] = outcome{v, r.logged[t]}
}

// start begins the results of a machine.
func (r *results) start(machine string) {
	r.machines = append(r.machines, machine)
	r.logged = map[test]string{}
}

// readJSON reads the events of `go test -json`.
func (r *results) readJSON(machine string, f io.Reader) error {
	r.start(machine)
	d := json.NewDecoder(f)
	for {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("not the output of go test -json: %w", err)
		}
		pkg := strings.TrimPrefix(e.Package, module)
		t := test{pkg, e.Test}
		switch {
		case e.Test == "" && e.Action == "fail":
			r.broken[machine] = append(r.broken[machine], pkg)
		case e.Test == "":
		case e.Action == "output":
			if line, ok := logLine(e.Output); ok {
				r.logged[t] = line
			}
		case e.Action == "pass":
			r.add(machine, t, passed)
		case e.Action == "fail":
			r.add(machine, t, failed)
		case e.Action == "skip":
			r.add(machine, t, skipped)
		}
	}
}

// readLog reads the output of test binaries run with -test.v, between the lines
// that guest/tests puts around it.
func (r *results) readLog(machine string, f io.Reader) error {
	r.start(machine)
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	var pkg, current string
	for s.Scan() {
		line := s.Text()
		if after, ok := strings.CutPrefix(line, "=== vm package "); ok {
			pkg, current = after, ""
			continue
		}
		if after, ok := strings.CutPrefix(line, "=== vm status "); ok {
			if status, p, _ := strings.Cut(after, " "); status != "0" {
				r.broken[machine] = append(r.broken[machine], p)
			}
			pkg = ""
			continue
		}
		if pkg == "" {
			continue
		}
		if f := strings.Fields(line); len(f) == 3 && f[0] == "===" {
			current = f[2] // RUN, CONT, NAME, PAUSE
			continue
		}
		if name, v, ok := resultLine(line); ok {
			r.add(machine, test{pkg, name}, v)
			continue
		}
		if text, ok := logLine(line); ok {
			r.logged[test{pkg, current}] = text
		}
	}
	if pkg != "" { // the machine ended in the middle of it
		r.broken[machine] = append(r.broken[machine], pkg)
	}
	return s.Err()
}

// resultLine reads "    --- SKIP: TestX/sub (0.00s)". What a test printed
// without a newline may stand before it.
func resultLine(line string) (name string, v verdict, ok bool) {
	for v, mark := range []string{"--- PASS: ", "--- FAIL: ", "--- SKIP: "} {
		if _, after, ok := strings.Cut(line, mark); ok {
			name, rest, _ := strings.Cut(after, " ")
			return name, verdict(v), strings.HasPrefix(rest, "(")
		}
	}
	return "", 0, false
}

// logLine reads "    file_test.go:12: text".
func logLine(line string) (text string, ok bool) {
	at, text, ok := strings.Cut(line, ": ")
	if !ok || !strings.HasPrefix(line, "    ") || !strings.Contains(at, ".go:") || strings.ContainsAny(strings.TrimSpace(at), " \t") {
		return "", false
	}
	return strings.TrimSpace(text), true
}

func (r *results) count(machine string) (c [3]int) {
	for _, on := range r.tests {
		if o, ok := on[machine]; ok {
			c[o.verdict]++
		}
	}
	return c
}

// onlySkipped tells whether a test was skipped wherever it was reached.
func (r *results) onlySkipped(t test) bool {
	for _, o := range r.tests[t] {
		if o.verdict != skipped {
			return false
		}
	}
	return len(r.tests[t]) > 0
}

// reasons gives the different reasons of a test's skips, with the machines.
func (r *results) reasons(t test) string {
	var order []string
	by := map[string][]string{}
	for _, m := range r.machines {
		o, ok := r.tests[t][m]
		if !ok {
			continue
		}
		if by[o.reason] == nil {
			order = append(order, o.reason)
		}
		by[o.reason] = append(by[o.reason], m)
	}
	for i, reason := range order {
		order[i] = fmt.Sprintf("%q on %s", reason, strings.Join(by[reason], ", "))
	}
	return strings.Join(order, "; ")
}

func (r *results) sorted() []test { return slices.SortedFunc(keys(r.tests), compare) }

func keys[V any](m map[test]V) iter.Seq[test] { return maps.Keys(m) }

func compare(a, b test) int {
	if c := strings.Compare(a.pkg, b.pkg); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}
