package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// leftover makes a directory as a crashed run would leave it, with a mount in it
// and a process that names it, and says who owned it.
func leftover(t *testing.T, prefix, owner string) (dir string, process *exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", prefix)
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "mnt")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", inside, "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o600); err != nil {
		t.Fatal(err)
	}
	process = exec.Command("sh", "-c", "read line", filepath.Join(dir, "sock"))
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = unix.Unmount(inside, unix.MNT_DETACH)
		_ = os.RemoveAll(dir)
	})
	return dir, process
}

// owner names a process as the file does.
func owner(t *testing.T, pid int) string {
	t.Helper()
	p, err := ktest.ReadProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %d\n", pid, p.Start)
}

// ended starts a process, waits for its end, and names it.
func ended(t *testing.T) string {
	t.Helper()
	c := exec.Command("sh", "-c", "read line")
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	name := owner(t, c.Process.Pid)
	stdin.Close()
	_ = c.Wait()
	return name
}

func newCleaner(prefix string) *cleaner {
	return &cleaner{prefix: prefix, busy: testsRun(), young: time.Now().Add(-time.Hour)}
}

func TestWhatACrashedRunLeftIsTakenAway(t *testing.T) {
	prefix := fmt.Sprintf("ibex-test-clean-%d-a-", os.Getpid())
	dir, process := leftover(t, prefix, ended(t))
	done := make(chan error, 1)
	go func() { done <- process.Wait() }() // the cleaner waits until no such process is there, zombies included
	if err := newCleaner(prefix).run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat %s: %v; want that it is gone", dir, err)
	}
	<-done
	if s, ok := process.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !s.Signaled() {
		t.Errorf("the process ended with %v; want a signal", process.ProcessState)
	}
}

func TestTheSocketOfAKilledShimGoes(t *testing.T) {
	prefix := fmt.Sprintf("ibex-test-clean-%d-e-", os.Getpid())
	dir, process := leftover(t, prefix, ended(t))
	go func() { _ = process.Wait() }()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.WriteFile(filepath.Join(dir, "bootstrap.json"), []byte(`{"version":3,"address":"unix://`+socket+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newCleaner(prefix).run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket: %v; want that it is gone", err)
	}
}

func TestARunThatGoesOnIsNotTouched(t *testing.T) {
	prefix := fmt.Sprintf("ibex-test-clean-%d-b-", os.Getpid())
	dir, process := leftover(t, prefix, owner(t, os.Getpid()))
	if err := newCleaner(prefix).run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "owner")); err != nil {
		t.Errorf("the directory of a living run: %v", err)
	}
	if err := process.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process of a living run: %v", err)
	}
}

func TestWithoutAnOwnerOnlyOldThingsGoWhileTestsRun(t *testing.T) {
	prefix := fmt.Sprintf("ibex-test-clean-%d-c-", os.Getpid())
	dir, _ := leftover(t, prefix, "")
	if err := os.Remove(filepath.Join(dir, "owner")); err != nil {
		t.Fatal(err)
	}
	c := newCleaner(prefix)
	c.busy = true // this very test, seen from a process of its own
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("a young directory: %v", err)
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old directory: %v; want that it is gone", err)
	}
}

func TestCgroupsOfACrashedRunGoWithTheirProcesses(t *testing.T) {
	name := fmt.Sprintf("ibex-test-clean-%d-d", os.Getpid())
	var made []string
	for _, h := range ktest.CgroupMounts() {
		if !h.V2 && !h.Has("pids") && !h.Has("freezer") {
			continue
		}
		g := filepath.Join(h.Dir, name)
		if err := os.MkdirAll(filepath.Join(g, "child"), 0o755); err != nil {
			t.Fatal(err)
		}
		made = append(made, g)
		t.Cleanup(func() { _, _ = os.Remove(filepath.Join(g, "child")), os.Remove(g) })
	}
	if len(made) == 0 {
		t.Skip("no cgroup hierarchy is mounted")
	}
	process := exec.Command("sh", "-c", "read line")
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill() })
	for _, g := range made {
		if err := os.WriteFile(filepath.Join(g, "child", "cgroup.procs"), []byte(strconv.Itoa(process.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- process.Wait() }()
	c := newCleaner(name)
	c.busy = false // as after the crash
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	<-done
	for _, g := range made {
		if _, err := os.Stat(g); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("cgroup %s: %v; want that it is gone", g, err)
		}
	}
}
