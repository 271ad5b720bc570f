// Command clean takes away what crashed runs of the tests and the demo left:
// processes, mounts, network namespaces, cgroups and temporary directories whose
// name starts with a prefix.
//
//	clean [-prefix ibex-test-] [-v | -q]
//
// It never touches a run that still goes on. A directory that holds owner.pid
// belongs to that process; without one, as long as any test binary runs on the
// machine, only what is older than an hour is taken. Processes are ended by
// pidfd, and only those that name such a directory on their command line or live
// in such a cgroup.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	prefix := flag.String("prefix", "ibex-test-", "what the names of leftovers start with")
	verbose := flag.Bool("v", false, "name each thing that is taken away")
	quiet := flag.Bool("q", false, "say nothing")
	flag.Parse()
	if !strings.HasPrefix(*prefix, "ibex-") {
		fmt.Fprintln(os.Stderr, "clean: the prefix must start with ibex-")
		os.Exit(2)
	}
	c := cleaner{prefix: *prefix, verbose: *verbose, quiet: *quiet, young: time.Now().Add(-time.Hour), busy: testsRunning()}
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, "clean:", err)
		os.Exit(1)
	}
}

type cleaner struct {
	prefix  string
	verbose bool
	quiet   bool      // do not even say how many
	busy    bool      // some test binary runs
	young   time.Time // what is younger may be its
	taken   int
}

func (c *cleaner) run() error {
	var dirs []string
	for _, tmp := range slices.Compact([]string{"/var/tmp", "/tmp", os.TempDir()}) {
		found, err := filepath.Glob(filepath.Join(tmp, c.prefix+"*"))
		if err != nil {
			return fmt.Errorf("glob %s: %w", tmp, err)
		}
		for _, d := range found {
			if c.abandoned(d) {
				dirs = append(dirs, d)
			}
		}
	}
	groups := c.cgroups()
	// Processes first: they hold everything else.
	if err := c.endProcesses(dirs, groups); err != nil {
		return err
	}
	if err := c.unmount(dirs); err != nil {
		return err
	}
	c.removeNetns()
	c.removeCgroups(groups)
	for _, d := range dirs {
		c.say("directory", d)
		if err := os.RemoveAll(d); err != nil {
			return fmt.Errorf("remove %s: %w", d, err)
		}
	}
	if c.taken > 0 && !c.quiet {
		fmt.Printf("clean: took away %d leftovers of an earlier run\n", c.taken)
	}
	return nil
}

// abandoned reports whether the run that made path has ended.
func (c *cleaner) abandoned(path string) bool {
	if text, err := os.ReadFile(filepath.Join(path, "owner.pid")); err == nil {
		return !alive(strings.TrimSpace(string(text)))
	}
	if !c.busy {
		return true
	}
	st, err := os.Lstat(path)
	return err == nil && st.ModTime().Before(c.young)
}

func (c *cleaner) say(kind, name string) {
	c.taken++
	if c.verbose {
		fmt.Println("clean:", kind, name)
	}
}
