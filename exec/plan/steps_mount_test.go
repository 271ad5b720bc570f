package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountSteps(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"root/old", "root/bind", "root/lower", "root/over"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	hold(t, unix.CLONE_NEWNS, func(b *Builder, _ FD) {
		b.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		// A descriptor from outside belongs to the mount of the old namespace.
		root := b.Openat2(Cwd, dir+"/root", path).FD()
		fs := b.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
		b.FsconfigString(fs.FD(), "size", "1m")
		b.FsconfigFlag(fs.FD(), "ro")
		b.FsconfigCreate(fs.FD())
		mnt := b.Fsmount(fs.FD(), unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID)
		at := b.Openat2(root, "lower", path)
		b.MoveMount(mnt.FD(), "", at.FD(), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
		tree := b.OpenTree(root, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		b.MountSetattr(tree.FD(), "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV, Attr_clr: 0, Propagation: unix.MS_SHARED})
		b.MoveMount(tree.FD(), "", root, "bind", unix.MOVE_MOUNT_F_EMPTY_PATH)
		b.Mount("none", dir+"/root/over", "tmpfs", unix.MS_NOEXEC, "mode=0700")
		b.Umount2(dir+"/root/over", unix.MNT_DETACH)
		b.Mount(dir+"/root", dir+"/root", "", unix.MS_BIND|unix.MS_REC, "")
		b.Chdir(dir + "/root")
		b.PivotRoot(".", "old")
		b.Chdir("/")
	}, func(_ int, proc string, _ [][]byte) {
		info, err := os.ReadFile(proc + "mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct{ at, opts string }{
			{" /lower ", "nosuid"}, {" /lower ", "size=1024k"}, {" /bind ", "nodev"}, {" /bind ", "shared:"},
		} {
			found := false
			for line := range strings.Lines(string(info)) {
				found = found || strings.Contains(line, want.at) && strings.Contains(line, want.opts)
			}
			if !found {
				t.Errorf("no mount at%swith %s:\n%s", want.at, want.opts, info)
			}
		}
		if strings.Contains(string(info), " /over ") {
			t.Error("umount2 left the mount")
		}
		if _, err := os.Stat(proc + "root/old/etc"); err != nil {
			t.Errorf("the old root is not below the new one: %v", err)
		}
	})
}

func TestFsconfigFDSetsADescriptor(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(dir+"/a/x", 0o755)
	os.MkdirAll(dir+"/b/y", 0o755)
	os.Mkdir(dir+"/m", 0o755)
	// overlayfs takes layers by descriptor since Linux 6.13 (commit a08557d19ef4).
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err == nil {
		err = unix.FsconfigSetFd(fd, "lowerdir+", openDir(t, dir+"/a"))
		unix.Close(fd)
	}
	if err != nil {
		t.Skipf("overlayfs takes no layer by descriptor: %v", err)
	}
	path := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	hold(t, unix.CLONE_NEWNS, func(b *Builder, _ FD) {
		b.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		fs := b.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
		b.FsconfigFD(fs.FD(), "lowerdir+", b.Openat2(Cwd, dir+"/a", path).FD())
		b.FsconfigFD(fs.FD(), "lowerdir+", b.Openat2(Cwd, dir+"/b", path).FD())
		b.FsconfigCreate(fs.FD())
		mnt := b.Fsmount(fs.FD(), unix.FSMOUNT_CLOEXEC, 0)
		b.MoveMount(mnt.FD(), "", b.Openat2(Cwd, dir+"/m", path).FD(), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	}, func(_ int, proc string, _ [][]byte) {
		for _, d := range []string{"x", "y"} {
			if _, err := os.Stat(proc + "root" + dir + "/m/" + d); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestMountSetattrMapsIDsWithANamespaceFromASlot(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(dir+"/src", 0o755)
	os.Mkdir(dir+"/dst", 0o755)
	// A process in a user namespace that maps 0 to 1000.
	var nsPid int
	hold(t, unix.CLONE_NEWUSER, func(*Builder, FD) {}, func(pid int, proc string, _ [][]byte) {
		nsPid = pid
		for _, f := range []string{"uid_map", "gid_map"} {
			if err := os.WriteFile(proc+f, []byte("0 1000 10"), 0); err != nil {
				t.Fatal(err)
			}
		}
		hold(t, unix.CLONE_NEWNS, func(b *Builder, _ FD) {
			b.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
			ns := b.Openat2(Cwd, fmt.Sprintf("/proc/%d/ns/user", nsPid), unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC})
			tree := b.OpenTree(Cwd, dir+"/src", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
			b.MountSetattrUserns(tree.FD(), "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP}, ns.FD())
			b.MoveMount(tree.FD(), "", Cwd, dir+"/dst", unix.MOVE_MOUNT_F_EMPTY_PATH)
		}, func(_ int, proc string, _ [][]byte) {
			var st unix.Stat_t
			if err := unix.Stat(proc+"root"+dir+"/dst", &st); err != nil || st.Uid != 1000 {
				t.Errorf("owner %d, %v; want 1000", st.Uid, err)
			}
		})
	})
}
