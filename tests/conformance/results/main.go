// Command results turns what a suite reports into a list of results by name and
// compares such a list with the incumbent's.
//
//	results critest REPORT.json > LIST
//	results gotest LOG > LIST
//	results compare -baseline LIST -known FILE [-names] LIST
//	results merge LIST AGAIN < NAMES > LIST
//
// A list has a line "STATE NAME" for each test, with the states passed, failed,
// skipped and, in a comparison, missing. A test is no worse than the incumbent's
// if it passes or has the same state. What else may happen stands in the file of
// known differences, each line with its reason:
//
//	STATE[,STATE...] NAME # reason
//
// compare -names prints the names of those that are worse, merge takes their
// states from a second run.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: results critest|gotest FILE, results compare -baseline LIST -known FILE LIST")
	}
	switch args[0] {
	case "critest":
		data, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		list, err := fromGinkgo(data)
		if err != nil {
			return fmt.Errorf("%s: %w", args[1], err)
		}
		list.print(os.Stdout)
		return nil
	case "gotest":
		data, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		fromGoTest(data).print(os.Stdout)
		return nil
	case "merge":
		return runMerge(args[1:])
	case "compare":
		return runCompare(args[1:])
	}
	return fmt.Errorf("no such command: %s", args[0])
}

func runCompare(args []string) error {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	baseline := flags.String("baseline", "", "list of the incumbent's results")
	known := flags.String("known", "", "differences that are known")
	names := flags.Bool("names", false, "print only the names of the tests that are worse")
	if err := flags.Parse(args); err != nil {
		return err
	}
	lists, err := readLists(*baseline, flags.Arg(0))
	if err != nil {
		return err
	}
	data, err := os.ReadFile(*known)
	if err != nil {
		return err
	}
	allowed, err := parseKnown(data)
	if err != nil {
		return fmt.Errorf("%s: %w", *known, err)
	}
	v := compare(lists[0], lists[1], allowed)
	if *names {
		for _, d := range v.worse {
			fmt.Println(d.name)
		}
		return nil
	}
	v.print(os.Stdout, allowed)
	if len(v.worse) > 0 || len(v.stale) > 0 {
		return fmt.Errorf("%d worse than the incumbent, %d known differences out of date", len(v.worse), len(v.stale))
	}
	return nil
}

func runMerge(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: results merge LIST AGAIN < NAMES")
	}
	lists, err := readLists(args...)
	if err != nil {
		return err
	}
	names, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for _, n := range strings.Split(string(names), "\n") {
		if state := lists[1][n]; state != "" {
			lists[0][n] = state
		}
	}
	lists[0].print(os.Stdout)
	return nil
}

func readLists(files ...string) (lists [2]list, err error) {
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return lists, err
		}
		if lists[i], err = parseList(data); err != nil {
			return lists, fmt.Errorf("%s: %w", file, err)
		}
	}
	return lists, nil
}
