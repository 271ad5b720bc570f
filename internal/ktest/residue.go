package ktest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Residue says what must be gone after a container. Empty fields are not
// looked at.
type Residue struct {
	Cgroup  string   // path below every hierarchy: no directory, no process
	Env     string   // NAME=value: no process that was started with it
	Arg     string   // no process that has it as an argument
	Dirs    []string // no mount at or below; not there any more
	Files   []string // such as sockets: not there any more
	PIDs    []int    // not alive, no zombie either
	Parents []int    // no zombie below them
}

// Left lists what is still there, one sentence each.
func (r Residue) Left() []string {
	var left []string
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }
	if r.Cgroup != "" {
		for _, d := range CgroupDirs(r.Cgroup) {
			add("cgroup %s", d)
		}
		for _, p := range InCgroup(r.Cgroup) {
			add("%v in cgroup %s", p, r.Cgroup)
		}
	}
	if r.Env != "" || r.Arg != "" {
		for _, p := range Procs() {
			switch {
			case p.PID == os.Getpid():
			case r.Arg != "" && slices.Contains(p.Cmd, r.Arg):
				add("%v has the argument %s", p, r.Arg)
			case r.Env != "" && HasEnv(p.PID, r.Env):
				add("%v has %s in its environment", p, r.Env)
			}
		}
	}
	for _, d := range r.Dirs {
		for _, m := range MountsBelow(d) {
			add("mount on %s", m)
		}
	}
	for _, f := range append(r.Dirs, r.Files...) {
		if _, err := os.Lstat(f); err == nil {
			add("file %s", f)
		}
	}
	for _, pid := range r.PIDs {
		if p, err := ReadProc(pid); err == nil {
			add("%v", p)
		}
	}
	for _, pid := range r.Parents {
		for _, c := range Children(pid) {
			if c.State == 'Z' {
				add("zombie %v", c)
			}
		}
	}
	return left
}

// Check fails the test if something is left after within.
func (r Residue) Check(t testing.TB, within time.Duration) {
	t.Helper()
	err := Poll(within, func() error {
		if left := r.Left(); len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, "\n\t"))
		}
		return nil
	})
	if err != nil {
		t.Errorf("left behind:\n\t%v", err)
	}
}

// Footprint is what a long-lived process holds; it must not grow with use.
type Footprint struct {
	PID     int
	FDs     []string
	Threads int
}

// ReadFootprint reads what a process holds now.
func ReadFootprint(pid int) Footprint {
	return Footprint{PID: pid, FDs: FDs(pid), Threads: Threads(pid)}
}

// CheckSteady fails the test unless the process returns, within the time, to at
// most the descriptors of the earlier reading and at most moreThreads threads
// more. (The Go runtime keeps a thread once it started it.)
func (f Footprint) CheckSteady(t testing.TB, within time.Duration, moreThreads int) {
	t.Helper()
	err := Poll(within, func() error {
		now := ReadFootprint(f.PID)
		if len(now.FDs) > len(f.FDs) {
			return fmt.Errorf("%d descriptors, %d before; new: %q", len(now.FDs), len(f.FDs), newOnes(f.FDs, now.FDs))
		}
		if now.Threads > f.Threads+moreThreads {
			return fmt.Errorf("%d threads, %d before", now.Threads, f.Threads)
		}
		return nil
	})
	if err != nil {
		t.Errorf("process %d grew: %v", f.PID, err)
	}
}

// newOnes lists the strings that after has more often than before.
func newOnes(before, after []string) []string {
	count := map[string]int{}
	for _, s := range before {
		count[s]++
	}
	var more []string
	for _, s := range after {
		if count[s]--; count[s] < 0 {
			more = append(more, s)
		}
	}
	return more
}
