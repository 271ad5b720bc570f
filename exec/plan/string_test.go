package plan

import (
	"flag"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		a, b := "", ""
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Errorf("%s:%d:\n got %s\nwant %s", file, i+1, a, b)
		}
	}
}

func TestEveryStepPrintsAsInTheGoldenFiles(t *testing.T) {
	p := everyStep(t)
	golden(t, "testdata/every.txt", p.String())
	golden(t, "testdata/every-full.txt", p.Text())
}

func TestStringShowsNoSecretsAndNoDescriptorNumbers(t *testing.T) {
	b := NewBuilder()
	b.Fchdir(Num(4242, "rootfs"))
	b.Execve("/bin/app", []string{"app", "--visible"}, []string{"TOKEN=s3cret", "no-equal-sign-s3cret"})
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	got := p.String()
	for _, hidden := range []string{"s3cret", "4242"} {
		if strings.Contains(got, hidden) {
			t.Errorf("String shows %q:\n%s", hidden, got)
		}
	}
	for _, shown := range []string{"TOKEN=", "--visible", "env(2)", "fd=rootfs"} {
		if !strings.Contains(got, shown) {
			t.Errorf("String lacks %q:\n%s", shown, got)
		}
	}
	for _, e := range []Failure{{Step: 0, Errno: 1}, {Step: 1, Errno: 2}} {
		if msg := p.Error(e).Error(); strings.Contains(msg, "s3cret") || strings.Contains(msg, "4242") {
			t.Errorf("the error shows a secret: %s", msg)
		}
	}
}

func TestAStepErrorStaysShortAndNamesTheStep(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	b := NewBuilder()
	b.Setns(Num(5, "net"), unix.CLONE_NEWNET)
	b.Chdir(long)
	b.Setgroups(make([]uint32, 60_000))
	b.Execve(long, strings.Split(long, "é"), []string{"A=" + long})
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Error(Failure{0, uint32(unix.EPERM)}).Error(), "plan step 0 setns fd=net NEWNET: operation not permitted"; got != want {
		t.Errorf("error = %q; want %q", got, want)
	}
	for i := range p.Len() {
		if msg := p.Error(Failure{uint32(i), 1}).Error(); len(msg) > maxErrorStep+100 {
			t.Errorf("step %d: message of %d bytes: %.200s", i, len(msg), msg)
		}
	}
	if got := p.Error(Failure{99, uint32(unix.ENOEXEC)}).Error(); !strings.Contains(got, "step 99 end of plan") {
		t.Errorf("error = %q", got)
	}
}
