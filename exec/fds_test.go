package exec_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ibex-run/ibex/exec"
)

// textFile is an open file with some text.
func textFile(t *testing.T, text string) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestExtraDescriptorsComeAfterTheStandardStreams(t *testing.T) {
	f := newFixture(t)
	a, b := textFile(t, "first "), textFile(t, "second ")
	p := f.process("/bin/sh", "-c", "cat <&4; cat <&3; ls /proc/self/fd")
	p.Extra = []int{int(b.Fd()), int(a.Fd())}
	out, st := f.output(&exec.Start{Process: p, Place: f.place()})
	if want := "first second 0\n1\n2\n3\n4\n5\n"; out != want || st.Code != 0 { // 5 is ls's own
		t.Errorf("exit %d, output %q, want %q", st.Code, out, want)
	}
	if p.Extra[0] != int(b.Fd()) || p.Extra[1] != int(a.Fd()) {
		t.Errorf("the caller's list was changed to %v", p.Extra)
	}
}

func TestAnExtraDescriptorIsNotPutOverOneThatTheStartNeeds(t *testing.T) {
	f := newFixture(t)
	p := f.process("/bin/true")
	zero := 0
	p.OOMScoreAdj = &zero // needs procfs
	for range f.proc.FD() {
		p.Extra = append(p.Extra, int(f.null.Fd()))
	}
	_, err := exec.Run(context.Background(), &exec.Start{Process: p, Place: f.place()})
	if err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("got %v, want a refusal", err)
	}
}
