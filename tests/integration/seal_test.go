package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// CVE-2019-5736: whoever holds the shim's executable cannot change the installed
// file by it, not even when the shim has ended.
func TestTheShimsExecutableIsNoWayToTheInstalledFile(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it runs from the installed file")
	d := ownDaemon(t)
	installed, err := filepath.EvalSymlinks(filepath.Join(binDir, "containerd-shim-ibex-v1"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	b := startBox(t, boxSpec{daemon: d})
	if comm := strings.TrimSpace(readFile(fmt.Sprintf("/proc/%d/comm", b.shimPID))); comm != "containerd-shim" {
		t.Errorf("the shim is called %q", comm)
	}
	var held []int
	for _, flags := range []int{unix.O_PATH, unix.O_RDONLY} {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/exe", b.shimPID), flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		held = append(held, fd)
	}
	var st, own unix.Stat_t
	if unix.Fstat(held[0], &st) != nil || unix.Stat(installed, &own) != nil {
		t.Fatal("stat of the executable")
	}
	if st.Dev == own.Dev && st.Ino == own.Ino {
		t.Error("the shim runs from the installed file itself")
	}
	write := func(when string) {
		t.Helper()
		for _, fd := range held {
			for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC} {
				w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags|unix.O_CLOEXEC, 0)
				if err != nil {
					continue
				}
				if _, err := unix.Write(w, []byte("changed")); err == nil {
					t.Errorf("%s: written to", when)
				}
				unix.Close(w)
			}
		}
		if now, err := os.ReadFile(installed); err != nil || !bytes.Equal(now, before) {
			t.Fatalf("%s: the installed file has changed: %v", when, err)
		}
	}
	write("while it runs")
	b.stop()
	ktest.Eventually(t, prompt, "the shim to end", func() error {
		if ktest.Alive(b.shimPID) {
			return os.ErrExist
		}
		return nil
	})
	write("when it has ended")
}
