package ktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTreeMakesEveryKindOfEntry(t *testing.T) {
	RequireRoot(t)
	dir := t.TempDir()
	Tree(t, dir, `
		d/
		0640 d/f = one\ntwo
		empty
		l -> d/f
		h => d/f
		p |
		0666 null c 1 3
	`)
	text, err := os.ReadFile(filepath.Join(dir, "l"))
	if err != nil || string(text) != "one\ntwo" {
		t.Errorf("d/f through the link: %q, %v", text, err)
	}
	for name, want := range map[string]os.FileMode{
		"d":     os.ModeDir | 0o755,
		"d/f":   0o640,
		"empty": 0o644,
		"h":     0o640,
		"p":     os.ModeNamedPipe | 0o600,
		"null":  os.ModeDevice | os.ModeCharDevice | 0o666,
	} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || st.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, st.Mode(), err, want)
		}
	}
}

func TestPollReturnsTheLastError(t *testing.T) {
	want := errors.New("not yet")
	if err := Poll(5*time.Millisecond, func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
	n := 0
	err := Poll(time.Minute, func() error {
		if n++; n < 3 {
			return want
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Errorf("after %d calls: %v", n, err)
	}
}

func TestParseMountsUndoesEscapes(t *testing.T) {
	ms := ParseMounts(`36 35 98:0 /mnt1 /a\040b rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue` + "\n")
	if len(ms) != 1 || ms[0].Point != "/a b" || ms[0].Type != "ext3" || ms[0].SuperOptions != "rw,errors=continue" ||
		!slices.Equal(ms[0].Propagation, []string{"shared:1", "master:2"}) {
		t.Errorf("got %+v", ms)
	}
}

func TestResidueSeesWhatIsLeft(t *testing.T) {
	RequireRoot(t)
	dir := t.TempDir()
	mark := EnvName + "=" + dir
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{mark, "PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = UnmountBelow(dir) })

	r := Residue{Env: mark, Dirs: []string{dir}, PIDs: []int{cmd.Process.Pid}}
	Eventually(t, 5*time.Second, "the child to execute", func() error {
		if n := len(r.Left()); n != 4 { // by environment, mount, directory, by pid
			return errors.New(strings.Join(r.Left(), "; "))
		}
		return nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 5*time.Second, "a zombie to be seen", func() error {
		if len((Residue{Parents: []int{os.Getpid()}}).Left()) == 0 {
			return errors.New("no zombie")
		}
		return nil
	})
}

func TestScratchOfAnEndedRunIsRemoved(t *testing.T) {
	RequireRoot(t)
	const prefix = "ibex-ktest-"
	s, err := NewScratch(prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Remove() })
	if again, err := NewScratch(prefix); err != nil {
		t.Fatal(err)
	} else if t.Cleanup(func() { _ = again.Remove() }); !exists(s.Dir) {
		t.Fatal("the scratch of a living run was removed")
	}
	// The owner's pid is reused by now: the start time differs.
	if err := os.WriteFile(filepath.Join(s.Dir, "owner"), []byte("1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	Tree(t, s.Dir, "m/")
	if err := unix.Mount("tmpfs", filepath.Join(s.Dir, "m"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), s.Env())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	again, err := NewScratch(prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Remove()
	<-ended
	if exists(s.Dir) {
		t.Error("the directory is still there")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
