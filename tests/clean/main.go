// Command clean takes away what crashed runs of the tests and the demo left:
// processes, mounts, cgroups, network namespaces and temporary directories whose
// name starts with a prefix.
//
//	clean [-prefix ibex-test-] [-v | -q]
//
// It never touches a run that goes on. A directory with a file "owner" belongs
// to the process that it names, by number and start time. What has no owner is
// only taken if it is older than an hour or no Go test runs on this machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ibex-run/ibex/internal/ktest"
)

func main() {
	c := cleaner{young: time.Now().Add(-time.Hour), busy: testsRun()}
	verbose := flag.Bool("v", false, "name each thing that is taken away")
	quiet := flag.Bool("q", false, "do not even say how many")
	flag.StringVar(&c.prefix, "prefix", "ibex-test-", "what the names of leftovers start with")
	flag.Parse()
	if !strings.HasPrefix(c.prefix, "ibex-") {
		fmt.Fprintln(os.Stderr, "clean: the prefix must start with ibex-")
		os.Exit(2)
	}
	err := c.run()
	if *verbose {
		for _, what := range c.taken {
			fmt.Println("clean:", what)
		}
	} else if n := len(c.taken); n > 0 && !*quiet {
		fmt.Printf("clean: took away %d leftovers of earlier runs\n", n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clean:", err)
		os.Exit(1)
	}
}

// testsRun tells whether a Go test binary runs: go test names them so.
func testsRun() bool {
	for _, p := range ktest.Procs() {
		if p.PID != os.Getpid() && len(p.Cmd) > 0 && strings.HasSuffix(p.Cmd[0], ".test") {
			return true
		}
	}
	return false
}
