package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
	missing = "missing" // it is in the baseline and did not run
)

// A list maps a test's name to its state.
type list map[string]string

func (l list) print(w io.Writer) {
	names := make([]string, 0, len(l))
	for n := range l {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(w, "%s %s\n", l[n], n)
	}
}

func (l list) count(state string) int {
	n := 0
	for _, s := range l {
		if s == state {
			n++
		}
	}
	return n
}

func parseList(data []byte) (list, error) {
	l := list{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		state, name, _ := strings.Cut(line, " ")
		if !isState(state) || name == "" {
			return nil, fmt.Errorf("line %d: not a state and a name: %q", i+1, line)
		}
		l[name] = state
	}
	if len(l) == 0 {
		return nil, fmt.Errorf("no results in it")
	}
	return l, nil
}

func isState(s string) bool {
	return s == passed || s == failed || s == skipped || s == missing
}

// A spec is what the list takes from ginkgo's report of one.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	LeafNodeLocation        struct{ LineNumber int }
}

// fromGinkgo reads ginkgo's JSON report. Whatever is neither passed nor skipped
// (panicked, timed out, interrupted) is failed. Specs of the same name are
// numbered in the order of their source.
func fromGinkgo(data []byte) (list, error) {
	var suites []struct {
		SpecReports []spec
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, err
	}
	l := list{}
	for _, s := range suites {
		specs := s.SpecReports
		slices.SortStableFunc(specs, func(a, b spec) int {
			return a.LeafNodeLocation.LineNumber - b.LeafNodeLocation.LineNumber
		})
		for _, r := range specs {
			if r.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " / ")
			l.add(name, r.State)
		}
	}
	return l, nil
}

// add records a state; a name that is there already gets a number.
func (l list) add(name, state string) {
	if state != passed && state != skipped {
		state = failed
	}
	key := name
	for i := 2; l[key] != ""; i++ {
		key = fmt.Sprintf("%s (%d)", name, i)
	}
	l[key] = state
}

// fromGoTest reads the log of a test binary that ran with -test.v=test2json,
// which puts a byte 0x16 before each line of its own: what the tests print
// without a newline cannot hide a result. A test that was started and has no
// result (the process ended in it) is failed.
func fromGoTest(log []byte) list {
	l := list{}
	started := map[string]bool{}
	for _, line := range bytes.Split(log, []byte("\n")) {
		i := bytes.IndexByte(line, 0x16)
		if i < 0 {
			continue
		}
		text := strings.TrimLeft(string(line[i+1:]), " ")
		mark, rest, ok := strings.Cut(text, ": ")
		if name, run := strings.CutPrefix(text, "=== RUN   "); run {
			started[name] = true
			continue
		}
		name, _, timed := strings.Cut(rest, " (")
		if !ok || !timed {
			continue
		}
		switch mark {
		case "--- PASS":
			l[name] = passed
		case "--- SKIP":
			l[name] = skipped
		case "--- FAIL":
			l[name] = failed
		}
	}
	for name := range started {
		if l[name] == "" {
			l[name] = failed
		}
	}
	return l
}
