package pathsafe

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A08, A10: what is mounted over a hierarchy before it is opened. A09: after.
func TestAHierarchyIsTheRealOne(t *testing.T) {
	privateMounts(t)
	before := hierarchyEntry(t, "pids")
	at := before.MountPoint
	h, err := OpenHierarchy(before)
	must(t, err)
	defer h.Close()
	g, n := group(t, h)

	tmpfs(t, at)
	_, err = OpenHierarchy(before)
	wantErr(t, err, ErrType)                            // A08
	must(t, g.Write(MustName("pids.max"), []byte("3"))) // A09
	again, err := h.Sub(n.Rel())
	must(t, err)
	if got := read(t, again, "pids.max"); got != "3" {
		t.Errorf("real tree has %q", got)
	}
	must(t, again.Close())
	must(t, unix.Unmount(at, unix.MNT_DETACH))

	bind(t, filepath.Join(at, n.String()), at) // A10
	_, err = OpenHierarchy(before)
	wantErr(t, err, ErrType)
	now := hierarchyMounts(t, at)
	for _, m := range now[1:] { // an entry read after the mount
		_, err = OpenHierarchy(m)
		wantErr(t, err, ErrType)
		m.Root = "/" // and one that lies: the inode tells
		_, err = OpenHierarchy(m)
		wantErr(t, err, ErrType)
	}
	must(t, unix.Unmount(at, unix.MNT_DETACH))
	// The right filesystem and root, on another mount.
	bind(t, at, at)
	_, err = OpenHierarchy(before)
	wantErr(t, err, ErrType)
	must(t, unix.Unmount(at, unix.MNT_DETACH))
	ok, err := OpenHierarchy(before)
	must(t, err)
	must(t, ok.Close())
}

func hierarchyMounts(t *testing.T, at string) (out []MountInfoEntry) {
	t.Helper()
	mounts, err := MountInfo()
	must(t, err)
	for _, m := range mounts {
		if m.MountPoint == at {
			out = append(out, m)
		}
	}
	return out
}

// A11: every hierarchy of the host opens, found by mountinfo and not by name;
// a name that is a link is not followed.
func TestEveryHierarchyOpens(t *testing.T) {
	privateMounts(t)
	mounts, err := MountInfo()
	must(t, err)
	found := 0
	for _, m := range mounts {
		if m.FSType != "cgroup" && m.FSType != "cgroup2" {
			continue
		}
		found++
		d, err := OpenHierarchy(m)
		must(t, err)
		if d.ID().Ino != 1 || d.Policy() != PolicyKernfs {
			t.Errorf("%v: %+v", d, d.ID())
		}
		must(t, d.Close())
	}
	if found == 0 {
		t.Skip("no cgroup hierarchy is mounted here")
	}
	m := hierarchyEntry(t, "pids")
	dir := tempDir(t)
	// A name with a comma, as of co-mounted controllers, and a link to it.
	co := filepath.Join(dir, "cpu,cpuacct")
	must(t, os.Mkdir(co, 0o755))
	bind(t, m.MountPoint, co)
	must(t, os.Symlink("cpu,cpuacct", filepath.Join(dir, "cpu")))
	entries := hierarchyMounts(t, co)
	d, err := OpenHierarchy(entries[len(entries)-1])
	must(t, err)
	must(t, d.Close())
	entries[0].MountPoint = filepath.Join(dir, "cpu")
	_, err = OpenHierarchy(entries[0])
	wantErr(t, err, ErrEscape)
}

// A12: a mount of another kind is no hierarchy, whatever its entry says.
func TestATmpfsIsNoHierarchy(t *testing.T) {
	privateMounts(t)
	at := filepath.Join(tempDir(t), "cgroup")
	must(t, os.Mkdir(at, 0o755))
	tmpfs(t, at)
	m := hierarchyMounts(t, at)[0]
	for _, fstype := range []string{"tmpfs", "cgroup", "cgroup2", ""} {
		m.FSType = fstype
		_, err := OpenHierarchy(m)
		wantErr(t, err, ErrType)
	}
	m.MountPoint = "sys/fs/cgroup"
	if _, err := OpenHierarchy(m); err == nil {
		t.Error("relative mount point accepted")
	}
}

// In a cgroup namespace the root that is mounted is another cgroup: it is right
// if the mount table says that it is the root there.
func TestAHierarchyInACgroupNamespace(t *testing.T) {
	privateMounts(t)
	h, _ := hierarchy(t, "pids")
	if h.ID().FSType != fsCgroup {
		t.Skip("a thread cannot change its cgroup by itself on cgroup v2")
	}
	g, _ := group(t, h)
	tid := []byte(strconv.Itoa(unix.Gettid()))
	must(t, g.Write(MustName("tasks"), tid))
	t.Cleanup(func() { must(t, h.Write(MustName("tasks"), tid)) })
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		t.Skipf("no cgroup namespace: unshare: %v", err)
	}
	at := tempDir(t)
	must(t, unix.Mount("cgroup", at, "cgroup", 0, "pids"))
	m := hierarchyMounts(t, at)[0]
	d, err := OpenHierarchy(m)
	must(t, err)
	defer d.Close()
	if d.ID().Ino == 1 || d.ID().Ino != g.ID().Ino {
		t.Errorf("inode %d, the group has %d", d.ID().Ino, g.ID().Ino)
	}
	for _, part := range []string{"/sub", "/.."} { // what a mount of another cgroup has
		m.Root = part
		_, err = OpenHierarchy(m)
		wantErr(t, err, ErrType)
	}
	must(t, unix.Unmount(at, unix.MNT_DETACH))
}
