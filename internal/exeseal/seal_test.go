package exeseal

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// program copies a program that can be changed.
func program(t *testing.T) (path string, content []byte) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	from, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if content, err = os.ReadFile(from); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestASealedProgramCannotBeChangedByWhoHoldsIt(t *testing.T) {
	for name, open := range map[string]func(path, scratch string) (int, error){
		"overlay": sealOverlay,
		"memory":  func(path, _ string) (int, error) { return sealMemory(path) },
		"unsealed": func(path, _ string) (int, error) { // shows that the attack is real
			return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, content := program(t)
			scratch := t.TempDir()
			fd, err := open(path, scratch)
			if err != nil {
				t.Fatal(err)
			}
			s, err := keepHigh(fd, name)
			if err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(scratch); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			cmd := exec.Command(s.Path(), "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s.Close()
			held, err := unix.Open("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(held)
			if unix.Access("/proc/self/fd/"+strconv.Itoa(held), unix.R_OK) != nil {
				t.Error("the program cannot be read")
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR | unix.O_TRUNC} {
				w, err := unix.Open("/proc/self/fd/"+strconv.Itoa(held), flags|unix.O_CLOEXEC, 0)
				if err != nil {
					continue
				}
				if n, err := unix.Write(w, []byte("changed")); err == nil && name != "unsealed" {
					t.Errorf("%d bytes written", n)
				}
				unix.Close(w)
			}
			now, err := os.ReadFile(path)
			if err != nil || bytes.Equal(now, content) == (name == "unsealed") {
				t.Errorf("the file is as it was: %v, %v", bytes.Equal(now, content), err)
			}
		})
	}
}

func TestAnOverlayThatCannotBeMadeIsReplacedByACopy(t *testing.T) {
	path, _ := program(t)
	s, err := Open(path, t.TempDir())
	if err != nil || s.how != "overlay" {
		t.Errorf("%+v %v", s, err)
	}
	s.Close()
	dir := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(dir, "prog")
	if err := os.Rename(path, odd); err != nil {
		t.Fatal(err)
	}
	s, err = Open(odd, t.TempDir())
	if err != nil || s.how != "memory" {
		t.Errorf("%+v %v", s, err)
	}
	s.Close()
	if _, err := Open(filepath.Join(dir, "none"), t.TempDir()); err == nil {
		t.Error("no error for a program that is not there")
	}
}

func BenchmarkSeal(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for name, open := range map[string]func() (int, error){
		"overlay": func() (int, error) { return sealOverlay(self, b.TempDir()) },
		"memory":  func() (int, error) { return sealMemory(self) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				fd, err := open()
				if err != nil {
					b.Fatal(err)
				}
				unix.Close(fd)
			}
		})
	}
}
