// Package ima holds the facts about IMA and overlayfs that the runtime counts
// on, as ratios of times measured in one run: IMA's list of measurements names a
// file once, however often it is hashed, so only time shows a hash.
package ima

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// size of the programs that are run. Hashing one takes 0.8 s in an emulated
// machine and 30-50 ms on a real one; running it without 20 ms and 1 ms.
const size = 48 << 20

// hashed is the ratio between an exec with a hash and one without that tells
// them apart. Seen are ratios below 3 and above 20.
const hashed = 8

const securityfs = "/sys/kernel/security/ima/"

// measurements returns the length of the kernel's list.
func measurements(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(securityfs + "runtime_measurements_count")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lab is a directory on a file system that IMA measures, which supports being
// an overlay's upper layer, with the time of an exec from it that is not hashed.
type lab struct {
	dir  string
	base time.Duration
}

// setUp skips unless an active policy measures the programs that root runs.
func setUp(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	if _, err := os.Stat(securityfs + "runtime_measurements_count"); err != nil {
		t.Skipf("needs IMA: %v", err)
	}
	l := &lab{dir: t.TempDir()}
	before := measurements(t)
	p := program(t, filepath.Join(l.dir, "plain"))
	run(t, p)
	if measurements(t) == before {
		t.Skip("needs an IMA policy that measures what root executes, such as ima_policy=tcb")
	}
	l.base = fastest(t, p)
	return l
}

// program makes an executable with contents of its own, and so a digest of its
// own. It is busybox as true, which ignores what follows its last section.
func program(t *testing.T, path string) string {
	t.Helper()
	var busybox string
	for _, b := range []string{"/run/vm/busybox", "/bin/busybox"} {
		if _, err := os.Stat(b); err == nil {
			busybox = b
			break
		}
	}
	if busybox == "" {
		t.Skip("needs a static busybox")
	}
	text, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	noise := make([]byte, 1<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, io.MultiReader(bytes.NewReader(text), repeat(noise, size>>20))); err != nil {
		t.Fatal(err)
	}
	return path
}

func repeat(b []byte, n int) io.Reader {
	r := make([]io.Reader, n)
	for i := range r {
		r[i] = bytes.NewReader(b)
	}
	return io.MultiReader(r...)
}

// run executes a program once and returns how long that took.
func run(t *testing.T, path string) time.Duration {
	t.Helper()
	c := exec.Cmd{Path: path, Args: []string{"true"}}
	start := time.Now()
	if err := c.Run(); err != nil {
		t.Fatalf("run %s: %v", path, err)
	}
	return time.Since(start)
}

// fastest of three execs. Noise only adds, and a hash is in all of them or in none.
func fastest(t *testing.T, path string) time.Duration {
	t.Helper()
	return min(run(t, path), run(t, path), run(t, path))
}

// ratio of a time to the one of an exec that is not hashed.
func (l *lab) ratio(d time.Duration) float64 { return float64(d) / float64(l.base) }

func (l *lab) expect(t *testing.T, what string, d time.Duration, hash bool) {
	t.Helper()
	r := l.ratio(d)
	t.Logf("%s: %.1f times an exec without a hash (%v)", what, r, l.base.Round(time.Millisecond))
	if (r > hashed) != hash {
		t.Errorf("%s: hashed %v, want %v", what, r > hashed, hash)
	}
}

// overlay mounts an overlay of the lower layers, with an upper one if asked.
func (l *lab) overlay(t *testing.T, upper bool, lowers ...string) (point string, unmount func()) {
	t.Helper()
	d, err := os.MkdirTemp(l.dir, "overlay")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(d, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + strings.Join(lowers, ":")
	if upper {
		options += fmt.Sprintf(",upperdir=%[1]s/upper,workdir=%[1]s/work", d)
	}
	return mount(t, "overlay", filepath.Join(d, "merged"), "overlay", 0, options)
}

// mount mounts and returns the mount point, and what takes it away (again, or
// at the end of the test).
func mount(t *testing.T, source, point, fs string, flags uintptr, options string) (string, func()) {
	t.Helper()
	if err := unix.Mount(source, point, fs, flags, options); err != nil {
		t.Fatalf("mount %s: %v", fs, err)
	}
	gone := false
	unmount := func() {
		if gone {
			return
		}
		gone = true
		if err := unix.Unmount(point, 0); err != nil {
			t.Errorf("umount %s: %v", point, err)
		}
	}
	t.Cleanup(unmount)
	return point, unmount
}

// bind mounts a directory by itself, read-only.
func (l *lab) bind(t *testing.T, dir string) (point string, unmount func()) {
	t.Helper()
	d, err := os.MkdirTemp(l.dir, "bind")
	if err != nil {
		t.Fatal(err)
	}
	point, unmount = mount(t, dir, d, "", unix.MS_BIND, "")
	if err := unix.Mount("", d, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatalf("remount read-only: %v", err)
	}
	return point, unmount
}

// erofs makes an image of a directory and mounts it from a loop device.
func (l *lab) erofs(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("mkfs.erofs"); err != nil {
		t.Skip("needs mkfs.erofs")
	}
	image, point := filepath.Join(l.dir, "image"), filepath.Join(l.dir, "erofs")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"modprobe", "loop"}, {"mkfs.erofs", image, dir}, {"mount", "-t", "erofs", "-o", "loop,ro", image, point}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", point).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return point
}

// olderThan compares the running kernel's release.
func olderThan(t *testing.T, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a < major || a == major && b < minor
}
