package main

import (
	"strings"
	"testing"
)

func mustList(t *testing.T, text string) list {
	t.Helper()
	l, err := parseList([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestATestIsWorseIfItFailsIsSkippedOrDoesNotRun(t *testing.T) {
	theirs := mustList(t, "passed a\npassed b\npassed c\nskipped d\nfailed e\npassed same\nskipped s\n")
	ours := mustList(t, "failed a\nskipped b\nfailed d\npassed e\npassed same\nskipped s\nfailed new\n")
	var got []string
	v := compare(theirs, ours, nil)
	for _, d := range v.worse {
		got = append(got, d.name+":"+d.theirs+">"+d.ours)
	}
	want := "a:passed>failed b:passed>skipped c:passed>missing d:skipped>failed new:>failed"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if len(v.better) != 1 || v.better[0].name != "e" {
		t.Errorf("better: %v", v.better)
	}
}

func TestAFailureOfBothNeedsAReason(t *testing.T) {
	l := mustList(t, "failed a\n")
	if v := compare(l, l, nil); len(v.worse) != 1 {
		t.Errorf("worse: %v", v.worse)
	}
}

func TestAKnownDifferenceIsAllowedAndNothingElse(t *testing.T) {
	k, err := parseKnown([]byte("# why\nfailed a # cannot\npassed,skipped b # a race\nskipped c # cannot\n"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := mustList(t, "passed a\npassed b\npassed c\n")
	if v := compare(theirs, mustList(t, "failed a\nskipped b\nskipped c\n"), k); len(v.worse)+len(v.stale) > 0 || len(v.known) != 3 {
		t.Errorf("%+v", v)
	}
	v := compare(theirs, mustList(t, "passed a\npassed b\nfailed c\n"), k)
	if len(v.worse) != 1 || v.worse[0].name != "c" {
		t.Errorf("worse: %v", v.worse)
	}
	if strings.Join(v.stale, " ") != "a" { // it passes; b may
		t.Errorf("stale: %v", v.stale)
	}
}

func TestAKnownDifferenceHasAReason(t *testing.T) {
	for _, bad := range []string{"failed a", "failed a # ", "broken a # why", "failed a # x\nfailed a # y"} {
		if _, err := parseKnown([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestResultsOfGoTests(t *testing.T) {
	log := "\x16=== RUN   TestA\n\x16=== RUN   TestA/one\nno newline\x16    --- PASS: TestA/one (0.00s)\n\x16--- PASS: TestA (0.00s)\n" +
		"\x16=== RUN   TestB\n--- PASS: TestB (0.00s)\n\x16--- FAIL: TestB (1.00s)\n\x16=== RUN   TestC\n\x16--- SKIP: TestC (0.00s)\n" +
		"\x16=== RUN   TestD\npanic: x\n"
	var b strings.Builder
	fromGoTest([]byte(log)).print(&b)
	if want := "passed TestA\npassed TestA/one\nfailed TestB\nskipped TestC\nfailed TestD\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestResultsOfGinkgo(t *testing.T) {
	l, err := fromGinkgo([]byte(`[{"SpecReports":[
		{"LeafNodeType":"BeforeSuite","State":"passed"},
		{"ContainerHierarchyTexts":["C","D"],"LeafNodeType":"It","LeafNodeText":"x","State":"timedout","LeafNodeLocation":{"LineNumber":9}},
		{"ContainerHierarchyTexts":["C","D"],"LeafNodeType":"It","LeafNodeText":"x","State":"skipped","LeafNodeLocation":{"LineNumber":2}}]}]`))
	if err != nil || len(l) != 2 || l["C / D / x"] != skipped || l["C / D / x (2)"] != failed {
		t.Errorf("%v %v", l, err)
	}
}
