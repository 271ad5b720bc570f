package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// A known difference: the states that a test may have, and why.
type known struct {
	states []string
	reason string
}

func parseKnown(data []byte) (map[string]known, error) {
	all := map[string]known{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		line, reason, ok := strings.Cut(line, " # ")
		states, name, ok2 := strings.Cut(line, " ")
		if !ok || !ok2 || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("line %d: not STATES NAME # reason: %q", i+1, line)
		}
		k := known{strings.Split(states, ","), strings.TrimSpace(reason)}
		for _, s := range k.states {
			if !isState(s) {
				return nil, fmt.Errorf("line %d: no such state: %q", i+1, s)
			}
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("line %d: %q is there twice", i+1, name)
		}
		all[name] = k
	}
	return all, nil
}

// A difference is one test whose state is not the incumbent's.
type difference struct {
	name, theirs, ours string
}

type verdict struct {
	theirs, ours list
	worse        []difference // and nothing says that they may be
	better       []difference
	known        []difference
	stale        []string // known differences of tests that do not exist or pass for sure
}

// compare holds ours against theirs. Skipped is worse than passed: a runtime
// that reports no features would skip their tests.
func compare(theirs, ours list, allowed map[string]known) verdict {
	v := verdict{theirs: theirs, ours: ours}
	names := make([]string, 0, len(theirs))
	for n := range theirs {
		names = append(names, n)
	}
	for n := range ours {
		if theirs[n] == "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for _, n := range names {
		d := difference{n, theirs[n], ours[n]}
		if d.ours == "" {
			d.ours = missing
		}
		k := allowed[n]
		switch {
		case d.theirs == d.ours && d.ours != failed:
		case slices.Contains(k.states, d.ours):
			if d.theirs != d.ours {
				v.known = append(v.known, d)
			}
		case d.ours == passed:
			if d.theirs != "" {
				v.better = append(v.better, d)
			}
		default: // a failure of both needs a reason too
			v.worse = append(v.worse, d)
		}
	}
	for n, k := range allowed {
		if ours[n] == "" && theirs[n] == "" || ours[n] == passed && !slices.Contains(k.states, passed) {
			v.stale = append(v.stale, n)
		}
	}
	slices.Sort(v.stale)
	return v
}

func (v verdict) print(w io.Writer, allowed map[string]known) {
	for _, part := range []struct {
		title string
		list  []difference
	}{{"worse", v.worse}, {"known", v.known}, {"better", v.better}} {
		for _, d := range part.list {
			theirs := d.theirs
			if theirs == "" {
				theirs = "not in the baseline"
			}
			fmt.Fprintf(w, "%s: %s (incumbent: %s): %s", part.title, d.ours, theirs, d.name)
			if part.title == "known" {
				fmt.Fprintf(w, " # %s", allowed[d.name].reason)
			}
			fmt.Fprintln(w)
		}
	}
	for _, n := range v.stale {
		fmt.Fprintf(w, "known, but passes or does not exist: %s\n", n)
	}
	fmt.Fprintf(w, "tests %d: passing %d, failing %d, skipping %d (incumbent: %d, %d, %d)\n", len(v.ours),
		v.ours.count(passed), v.ours.count(failed), v.ours.count(skipped),
		v.theirs.count(passed), v.theirs.count(failed), v.theirs.count(skipped))
}
