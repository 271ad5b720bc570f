package main_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTheDoctorSaysWhatIsThere(t *testing.T) {
	c := newCLI(t, "true")
	out, said, code := c.run("doctor", "--json")
	var all []struct{ Area, Check, State, Detail, Needed string }
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, said)
	}
	found := map[string]string{}
	for _, f := range all {
		if f.State != "ok" && f.State != "note" || f.State == "note" && f.Needed == "" && f.Detail == "" {
			t.Errorf("%+v: on a host that runs these tests nothing is missing, and a note says what it is about", f)
		}
		found[f.Check] = f.State
	}
	for _, check := range []string{"release", "clone3", "mode", "controller memory", "seccomp", "apparmor", "user namespaces"} {
		if found[check] == "" {
			t.Errorf("no line about %s", check)
		}
	}
	text, _, code := c.run("doctor")
	if code != 0 || !strings.Contains(text, "CGROUPS\n") || strings.Count(text, "\n") != len(all)+4 {
		t.Errorf("exit code %d, %s", code, text)
	}
}
