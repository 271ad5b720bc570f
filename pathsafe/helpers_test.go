package pathsafe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr ends the test unless err is all of want.
func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v", want)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("error %q is not %v", err, w)
		}
	}
}

// closing closes d at the end of the test.
func closing[C interface{ Close() error }](t testing.TB, c C) C {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func inRoot(t *testing.T, s string) InRoot {
	t.Helper()
	p, err := ParseInRoot(s)
	must(t, err)
	return p
}

// plant makes a tree below dir, one line a thing: "dir a/b", "file a/f text",
// "link a/l target", "fifo p", "hard new old". Directories on the way are made.
func plant(t *testing.T, dir string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		path := filepath.Join(dir, f[1])
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch f[0] {
		case "dir":
			must(t, os.MkdirAll(path, 0o755))
		case "file":
			must(t, os.WriteFile(path, []byte(f[2]), 0o644))
		case "link":
			must(t, os.Symlink(f[2], path))
		case "fifo":
			must(t, unix.Mkfifo(path, 0o644))
		case "hard":
			must(t, os.Link(filepath.Join(dir, f[2]), path))
		default:
			t.Fatalf("plant: %q", line)
		}
	}
}

// decoy makes a directory that an attack aims at, and fails the test at its end
// if anything in it changed.
func decoy(t *testing.T, lines ...string) string {
	t.Helper()
	dir := tempDir(t)
	plant(t, dir, append([]string{"file secret host secret", "dir x", "file x/f host file", "dir sub"}, lines...)...)
	before := listing(t, dir)
	t.Cleanup(func() {
		if after := listing(t, dir); before != after {
			t.Errorf("decoy changed:\n%s\nwas:\n%s", after, before)
		}
	})
	return dir
}

// listing describes all that is in dir: name, mode, inode, owner, content.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s mode=%o ino=%d uid=%d", rel, st.Mode, st.Ino, st.Uid)
		if e.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " sha=%x", sha256.Sum256(data))
		}
		b.WriteByte('\n')
		return nil
	})
	must(t, err)
	return b.String()
}

// stateDir makes a directory fit for OpenState and opens it.
func stateDir(t *testing.T, lines ...string) (*Dir, string) {
	t.Helper()
	dir := tempDir(t)
	must(t, os.Chmod(dir, 0o700))
	plant(t, dir, lines...)
	d, err := OpenState(dir)
	must(t, err)
	return closing(t, d), dir
}

// root makes a directory to be a container's root and opens it.
func root(t *testing.T, lines ...string) (*Dir, string) {
	t.Helper()
	dir := filepath.Join(tempDir(t), "rootfs")
	must(t, os.Mkdir(dir, 0o755))
	plant(t, dir, lines...)
	d, err := OpenRootfs(dir)
	must(t, err)
	return closing(t, d), dir
}

func strict(t *testing.T, d *Dir) *Dir {
	t.Helper()
	s, err := d.Strict()
	must(t, err)
	return closing(t, s)
}

// privateMounts moves the test's goroutine, with its thread for good, to a mount
// namespace of its own, so that no mount of the test is seen outside. The test
// must not start subtests after it.
func privateMounts(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace of our own: unshare: %v", err)
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

func bind(t *testing.T, from, to string) {
	t.Helper()
	must(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
}

func tmpfs(t *testing.T, at string) {
	t.Helper()
	must(t, unix.Mount("ibex-test", at, "tmpfs", 0, "size=1m"))
}

// hierarchyEntry returns the mount of a v1 controller, or of v2 for "unified".
func hierarchyEntry(t testing.TB, controller string) MountInfoEntry {
	t.Helper()
	mounts, err := MountInfo()
	must(t, err)
	for _, m := range mounts {
		v1 := m.FSType == "cgroup" && slices.Contains(strings.Split(m.SuperOptions, ","), controller)
		if v1 || m.FSType == "cgroup2" && controller == "unified" {
			return m
		}
	}
	t.Skipf("no cgroup hierarchy %s is mounted here", controller)
	return MountInfoEntry{}
}

func hierarchy(t testing.TB, controller string) (*Dir, string) {
	t.Helper()
	m := hierarchyEntry(t, controller)
	d, err := OpenHierarchy(m)
	must(t, err)
	return closing(t, d), m.MountPoint
}

var groupCounter atomic.Int64

// group makes a cgroup for the test, which is removed with all below it.
func group(t testing.TB, h *Dir) (*Dir, Name) {
	t.Helper()
	n := MustName(groupPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(groupCounter.Add(1), 10))
	d, created, err := h.Mkdir(n, 0o755)
	must(t, err)
	if !created {
		t.Fatalf("cgroup %v was there", n)
	}
	// A Dir of its own: the test may close h, or mount over it.
	again, err := OpenHierarchy(hierarchyOf(t, h))
	must(t, err)
	t.Cleanup(func() {
		_ = d.Close()
		defer again.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := again.RemoveCgroupTree(ctx, n); err != nil {
			t.Errorf("clean-up: %v", err)
		}
	})
	return d, n
}

// hierarchyOf finds the entry that h was opened from.
func hierarchyOf(t testing.TB, h *Dir) MountInfoEntry {
	mounts, err := MountInfo()
	must(t, err)
	for _, m := range mounts {
		if m.FSType+" "+m.MountPoint == h.tree {
			return m
		}
	}
	return MountInfoEntry{}
}

// storm runs attack over and over on its own threads until the test's part is
// over: as many as there are processors.
func storm(t *testing.T, attack func(i int)) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				attack(i)
			}
		})
	}
	t.Cleanup(func() {
		stop.Store(true)
		wg.Wait()
	})
}

// budget calls f until 5,000 calls or 2 seconds are over.
func budget(f func(i int)) int {
	end := time.Now().Add(2 * time.Second)
	i := 0
	for ; i < 5000 && time.Now().Before(end); i++ {
		f(i)
	}
	return i
}

// exchange swaps two names in the directory of a descriptor.
func exchange(dirfd int, a, b string) {
	_ = unix.Renameat2(dirfd, a, dirfd, b, unix.RENAME_EXCHANGE)
}

// dirfd opens a directory for exchange.
func dirfd(t *testing.T, path string) int {
	t.Helper()
	n, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(n) })
	return n
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Ino
}

// tempDir is t.TempDir that takes away what is mounted below the directory
// before it removes it: through a mount, it would remove the host's files.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ibex-test-pathsafe-")
	must(t, err)
	t.Cleanup(func() {
		for range 100 {
			mounts, err := MountInfo()
			if err != nil {
				t.Errorf("%s is left: %v", dir, err)
				return
			}
			slices.Reverse(mounts)
			i := slices.IndexFunc(mounts, func(m MountInfoEntry) bool { return strings.HasPrefix(m.MountPoint, dir) })
			if i < 0 {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
				return
			}
			_ = unix.Unmount(mounts[i].MountPoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		t.Errorf("%s is left: mounts below it stay", dir)
	})
	return dir
}
