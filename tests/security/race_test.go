package security

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// raceTime bounds each race.
const raceTime = 2 * time.Second

// exchange swaps two names again and again until the test ends. It is the
// neighbour in a shared volume.
func exchange(t *testing.T, dir, a, b string) (rounds *atomic.Int64) {
	t.Helper()
	rounds = new(atomic.Int64)
	var stop atomic.Bool
	ended := make(chan error, 1)
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	go func() {
		for !stop.Load() {
			if err := unix.Renameat2(fd, a, fd, b, unix.RENAME_EXCHANGE); err != nil {
				ended <- err
				return
			}
			rounds.Add(1)
		}
		ended <- nil
	}()
	t.Cleanup(func() {
		stop.Store(true)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	})
	return rounds
}

// Two containers share a volume, and one changes what the way to a mount leads
// through while the other is set up: runc mounted on the host (CVE-2021-30465)
// and made files there (CVE-2024-45310), the kubelet bound the host's directories
// (CVE-2017-1002101, CVE-2021-25741).
func TestANeighbourInASharedVolumeCannotMoveAMountOutside(t *testing.T) {
	for name, v := range map[string]struct{ link, dest string }{
		"an existing place, a link to the root":  {"/", "/vol/a/d"},
		"an existing place, a link upwards":      {"../../../../../../../..", "/vol/a/d"},
		"an existing place, a link to the decoy": {"DECOY", "/vol/a/d"},
		"a new place, a link to the root":        {"/", "/vol/a/new/er"},
		"a new place, a link to the decoy":       {"DECOY", "/vol/a/new/er"},
		"the place itself, a link to the decoy":  {"DECOY/d", "/vol/a"},
	} {
		t.Run(name, func(t *testing.T) {
			host := decoy(t)
			vol, err := os.MkdirTemp(scratch.Dir, "vol-")
			must(t, err)
			t.Cleanup(func() { os.RemoveAll(vol) })
			ktest.Tree(t, vol, "a/d/\nb -> "+strings.ReplaceAll(v.link, "DECOY", host))
			rounds := exchange(t, vol, "a", "b")
			made, refused := 0, 0
			for begin := time.Now(); time.Since(begin) < raceTime; {
				b := newBox(t, "/bin/true")
				b.spec.Mounts = append(b.spec.Mounts,
					specs.Mount{Destination: "/vol", Type: "bind", Source: vol, Options: []string{"rbind"}},
					specs.Mount{Destination: v.dest, Type: "tmpfs", Source: "marker"})
				c, err := b.create()
				for _, m := range ktest.Mounts() {
					if m.Source == "marker" {
						t.Fatalf("the mount is on the host: %s", m.Point)
					}
				}
				if err != nil {
					refused++
					b.nothingLeft()
					continue
				}
				made++
				inside, err := ktest.MountsOf(c.Init().PID())
				must(t, err)
				found := 0
				for _, m := range inside {
					if m.Source == "marker" {
						found++
					}
				}
				if found != 1 {
					t.Errorf("%d marks inside", found)
				}
				b.remove(c)
			}
			t.Logf("%d made, %d refused, %d exchanges", made, refused, rounds.Load())
		})
	}
}

// The source of a bind mount is opened once, and what was opened is mounted: one
// of the two, and never a mixture of a path that was checked and another.
func TestASourceThatChangesIsOneOrTheOther(t *testing.T) {
	host := decoy(t)
	vol, err := os.MkdirTemp(scratch.Dir, "vol-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(vol) })
	ktest.Tree(t, vol, "a/good = yes\nb -> "+host)
	exchange(t, vol, "a", "b")
	for begin := time.Now(); time.Since(begin) < raceTime; {
		b := newBox(t, "/bin/ls", "/m")
		b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/m", Type: "bind", Source: filepath.Join(vol, "a"), Options: []string{"bind"}})
		out, _, err := b.run()
		if err == nil && out != "good\n" && !strings.Contains(out, "secret\n") {
			t.Fatalf("mounted: %q", out)
		}
	}
}

// A mask in a volume covers what was there at the moment, inside the container:
// the neighbour may uncover his own file later, and cannot send the mask elsewhere.
func TestAMaskInAVolumeCoversSomethingOfTheContainer(t *testing.T) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	must(t, err)
	vol, err := os.MkdirTemp(scratch.Dir, "vol-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(vol) })
	ktest.Tree(t, vol, "a/secret = s\nb/secret -> /proc/sys/kernel/core_pattern")
	exchange(t, vol, "a", "b")
	for begin := time.Now(); time.Since(begin) < raceTime; {
		b := newBox(t, "/bin/grep", "/vol/./secret\\|core_pattern\\|/vol/../secret", "/proc/self/mountinfo")
		b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/vol", Type: "bind", Source: vol, Options: []string{"rbind"}})
		b.spec.Linux.MaskedPaths = append(b.spec.Linux.MaskedPaths, "/vol/a/secret")
		out, _, err := b.run()
		if err == nil && strings.Count(out, "\n") == 0 {
			t.Errorf("started with mounts %q", out)
		}
	}
	if now, _ := os.ReadFile("/proc/sys/kernel/core_pattern"); string(now) != string(pattern) {
		t.Errorf("core_pattern of the host is %q", now)
	}
}

// Whoever renames files of his own anywhere on the host makes the kernel give up
// a resolution that goes upwards, with EAGAIN (openat2(2)). It is tried again:
// no container may keep another from starting.
func TestRenamesElsewhereDoNotStopAStart(t *testing.T) {
	dir, err := os.MkdirTemp(scratch.Dir, "storm-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ktest.Tree(t, dir, "a/\nb/\nc/\nd/")
	exchange(t, dir, "a", "b")
	exchange(t, dir, "c", "d")
	up := strings.Repeat("../x/", 30) + "../tmp/there"
	for begin := time.Now(); time.Since(begin) < raceTime; {
		b := newBox(t, "/bin/true")
		ktest.Tree(t, b.root, "x/\ntmp/there/\nvia -> "+up)
		b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/via", Type: "tmpfs", Source: "tmpfs"})
		if _, _, err := b.run(); err != nil {
			t.Fatal(err)
		}
	}
}
