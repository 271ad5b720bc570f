package main

import (
	"strings"
	"testing"
)

const plain = `
=== vm package a
=== RUN   TestRuns
--- PASS: TestRuns (0.01s)
=== RUN   TestV1
    a_test.go:7: needs cgroup v1
--- SKIP: TestV1 (0.00s)
=== RUN   TestNowhere
    a_test.go:9: needs a comet
--- SKIP: TestNowhere (0.00s)
=== RUN   TestParent
=== RUN   TestParent/sub
    a_test.go:12: no such file: x
some output--- FAIL: TestFails (0.00s)
--- PASS: TestParent (0.00s)
    --- SKIP: TestParent/sub (0.00s)
FAIL

=== vm status 1 a

=== vm package b
--- PASS: TestOutside (0.00s)

=== vm status 0 b
`

const host = `{"Action":"output","Package":"github.com/ibex-run/ibex/a","Test":"TestNowhere","Output":"    a_test.go:9: needs two comets\n"}
{"Action":"skip","Package":"github.com/ibex-run/ibex/a","Test":"TestNowhere"}
{"Action":"pass","Package":"github.com/ibex-run/ibex/a","Test":"TestV1"}
{"Action":"pass","Package":"github.com/ibex-run/ibex/a"}
`

func read(t *testing.T) *results {
	t.Helper()
	r := newResults()
	if err := r.readJSON("host", strings.NewReader(host)); err != nil {
		t.Fatal(err)
	}
	if err := r.readLog("plain", strings.NewReader(plain)); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSkippedEverywhereFailsAndNamesTheTestsAndReasons(t *testing.T) {
	var out strings.Builder
	if bad := report(&out, read(t), nil, true); bad != 2 {
		t.Errorf("%d complaints, want 2", bad)
	}
	got := out.String()
	for _, want := range []string{
		`SKIPPED everywhere: a TestNowhere: "needs two comets" on host; "needs a comet" on plain`,
		`SKIPPED everywhere: a TestParent/sub: "no such file: x" on plain`,
		"plain          3 passed, 1 failed, 3 skipped; packages that failed: a",
		"FAILED on plain: a TestFails",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "a TestV1:") {
		t.Errorf("a test that ran on the host is listed:\n%s", got)
	}
}

func TestPartOfTheMatrixDoesNotDecide(t *testing.T) {
	var out strings.Builder
	if bad := report(&out, read(t), nil, false); bad != 0 {
		t.Errorf("%d complaints", bad)
	}
	if !strings.Contains(out.String(), "SKIPPED in this part of the matrix: a TestNowhere") {
		t.Errorf("the skip is not shown:\n%s", out.String())
	}
}

func TestExcusedTestsPassUntilTheyRun(t *testing.T) {
	r := read(t)
	never := map[test]string{{"a", "TestNowhere"}: "no comet", {"a", "TestParent/sub"}: "no x"}
	var out strings.Builder
	if bad := report(&out, r, never, true); bad != 0 {
		t.Errorf("%d complaints:\n%s", bad, out.String())
	}
	never[test{"b", "TestOutside"}] = "runs by now"
	never[test{"b", "TestGone"}] = "was removed"
	out.Reset()
	if bad := report(&out, r, never, true); bad != 2 {
		t.Errorf("%d complaints about stale excuses, want 2:\n%s", bad, out.String())
	}
}

func TestMachineThatEndsInsideAPackageBreaksIt(t *testing.T) {
	r := newResults()
	if err := r.readLog("m", strings.NewReader("=== vm package a\n=== RUN   TestX\n")); err != nil {
		t.Fatal(err)
	}
	if len(r.broken["m"]) != 1 || r.broken["m"][0] != "a" {
		t.Errorf("broken packages: %v", r.broken["m"])
	}
}
