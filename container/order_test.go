package container_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// mountPoints lists field 5 of a mountinfo, proc_pid_mountinfo(5).
func mountPoints(text string) (points []string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 5 {
			points = append(points, f[4])
		}
	}
	return points
}

func TestMountsAreListedInTheOrderOfTheSpecification(t *testing.T) {
	b := newBundle(t, "cat", "/proc/self/mountinfo")
	var want []string
	for _, m := range b.spec.Mounts {
		want = append(want, m.Destination)
	}
	if b.spec.Mounts[0].Type != "proc" {
		t.Fatal("the test needs a mount that the child makes before others")
	}
	out, code := b.run()
	if code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	got := slices.DeleteFunc(mountPoints(out), func(p string) bool { return !slices.Contains(want, p) })
	if !slices.Equal(got, want) {
		t.Errorf("listed as %v, want %v", got, want)
	}
}

// The devpts instance is mounted in advance and comes to the container as a
// copy; a terminal opened through the first mount would have no path.
func TestATerminalsPathExistsInTheContainer(t *testing.T) {
	b := newBundle(t, "sh", "-c", "readlink /proc/self/fd/0; stat -c %t /dev/console")
	b.spec.Process.Terminal = true
	c, err := b.create(container.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(c.Init().Console()) // EIO at the end, see pty(7)
	if got := string(out); got != "/dev/pts/0\r\n88\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestABindMountSeesWhatEarlierMountsHaveBrought(t *testing.T) {
	b := newBundle(t, "sh", "-c", "cat /second/file /third; grep -c ' /second ro' /proc/self/mountinfo")
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("from the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := func(p string) string { return filepath.Join(b.dir, "rootfs", p) }
	b.spec.Mounts = append(b.spec.Mounts,
		specs.Mount{Destination: "/first", Source: src, Options: []string{"bind"}},
		specs.Mount{Destination: "/second", Source: inside("first"), Options: []string{"bind", "ro"}},
		specs.Mount{Destination: "/third", Source: inside("second/file"), Options: []string{"bind"}})
	if out, code := b.run(); out != "from the host\nfrom the host\n1\n" || code != 0 {
		t.Errorf("exit code %d, %q", code, out)
	}
}

func TestTheKernelsFileSystemsAreNotMountedOverLinks(t *testing.T) {
	b := newBundle(t, "true")
	proc := filepath.Join(b.dir, "rootfs/proc")
	if err := os.Remove(proc); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink("/tmp", proc); err != nil {
		t.Fatal(err)
	}
	if _, err := b.create(container.Stdio{}); !errors.Is(err, unix.ELOOP) || !strings.Contains(err.Error(), "mounts[0] (/proc): type proc") {
		t.Errorf("got %v", err)
	}
	b.nothingLeft()
}
