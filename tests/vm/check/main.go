// Command check reads what the tests printed on several machines, and says
// which of them failed and which ran nowhere.
//
//	check [-decide] [-host FILE] [-never FILE] MACHINE.log...
//
// A log is the output of tests/vm/guest/tests. The host's file is the output of
// `go test -json`. With -decide, a test that was skipped wherever it was reached
// makes the status 1, unless the never file names it with a reason; so does a
// line of that file whose test did run. Failed tests are listed but do not
// change the status: the machine's own status has told already.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	decide := flag.Bool("decide", false, "fail if a test was skipped everywhere")
	host := flag.String("host", "", "output of go test -json on the host")
	neverFile := flag.String("never", "", "tests that cannot run anywhere: PACKAGE TEST reason")
	flag.Parse()
	r := newResults()
	if err := load(r, *host, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
	never, err := readNever(*neverFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(2)
	}
	if bad := report(os.Stdout, r, never, *decide); bad > 0 {
		os.Exit(1)
	}
}

// load reads the host's results and the machines' logs.
func load(r *results, host string, logs []string) error {
	if host != "" {
		f, err := os.Open(host)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := r.readJSON("host", f); err != nil {
			return fmt.Errorf("read %s: %w", host, err)
		}
	}
	for _, log := range logs {
		f, err := os.Open(log)
		if err != nil {
			return err
		}
		err = r.readLog(strings.TrimSuffix(filepath.Base(log), ".log"), f)
		f.Close()
		if err != nil {
			return fmt.Errorf("read %s: %w", log, err)
		}
	}
	return nil
}

// readNever reads the tests that are excused, with the reasons.
func readNever(file string) (map[test]string, error) {
	never := map[test]string{}
	if file == "" {
		return never, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			return nil, fmt.Errorf("%s: want PACKAGE TEST reason, not %q", file, strings.TrimSpace(line))
		}
		never[test{f[0], f[1]}] = strings.Join(f[2:], " ")
	}
	return never, nil
}

// report prints a line per machine, the failures, and the skips that count. It
// returns how many things are wrong about skips; none if it is not to decide.
func report(w io.Writer, r *results, never map[test]string, decide bool) (bad int) {
	for _, m := range r.machines {
		c := r.count(m)
		fmt.Fprintf(w, "%-14s %d passed, %d failed, %d skipped", m, c[passed], c[failed], c[skipped])
		if f := r.broken[m]; len(f) > 0 {
			fmt.Fprintf(w, "; packages that failed: %s", strings.Join(f, " "))
		}
		fmt.Fprintln(w)
	}
	for _, t := range r.sorted() {
		for _, m := range r.machines {
			if o, ok := r.tests[t][m]; ok && o.verdict == failed {
				fmt.Fprintf(w, "FAILED on %s: %s %s: %s\n", m, t.pkg, t.name, o.reason)
			}
		}
	}
	for _, t := range r.sorted() {
		if !r.onlySkipped(t) {
			continue
		}
		if _, ok := never[t]; ok {
			continue
		}
		where := "everywhere"
		if !decide {
			where = "in this part of the matrix"
		}
		fmt.Fprintf(w, "SKIPPED %s: %s %s: %s\n", where, t.pkg, t.name, r.reasons(t))
		bad++
	}
	for _, t := range slices.SortedFunc(keys(never), compare) {
		if _, ok := r.tests[t]; ok && !r.onlySkipped(t) {
			fmt.Fprintf(w, "STALE: %s %s does run; take it out of the file\n", t.pkg, t.name)
			bad++
		} else if !ok && decide {
			fmt.Fprintf(w, "STALE: there is no test %s %s; take it out of the file\n", t.pkg, t.name)
			bad++
		}
	}
	if !decide {
		return 0
	}
	return bad
}
