package pathsafe

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountable is root as a container's own: what NewRootfs makes of a descriptor.
// The test is in a private mount namespace.
func mountable(t *testing.T, lines ...string) (*Dir, string) {
	t.Helper()
	dir := filepath.Join(tempDir(t), "rootfs")
	must(t, os.Mkdir(dir, 0o755))
	plant(t, dir, lines...)
	return adopt(t, dir), dir
}

func adopt(t *testing.T, dir string) *Dir {
	t.Helper()
	n, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	d, err := NewRootfs(n)
	must(t, err)
	return closing(t, d)
}

func markers(t *testing.T) (out []string) {
	t.Helper()
	mounts, err := MountInfo()
	must(t, err)
	for _, m := range mounts {
		if m.Source == "ibex-test-marker" {
			out = append(out, m.MountPoint)
		}
	}
	return out
}

// I13: what Attach returns is what Verify needs, and Verify takes nothing else.
func TestAttachAndVerify(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir data", "file etc/hosts x")
	for _, path := range []string{"data", "new/dir"} {
		target, err := d.MkTarget(inRoot(t, path), KindDir, 0o700)
		must(t, err)
		id, err := Attach(detachedTmpfs(t), closing(t, target))
		must(t, err)
		must(t, d.Verify(target.Path(), id))
		must(t, strict(t, d).Verify(target.Path(), id))
		if got := markers(t); len(got) == 0 || got[len(got)-1] != filepath.Join(dir, path) {
			t.Errorf("mounted at %q", got)
		}
		wantErr(t, d.Verify(inRoot(t, "etc"), id), ErrRaced)
		wantErr(t, d.Verify(inRoot(t, "nowhere"), id), unix.ENOENT)
	}
	// A file over a file.
	target, err := d.MkTarget(inRoot(t, "etc/new.conf"), KindReg, 0o600)
	must(t, err)
	defer target.Close()
	null, err := OpenDevNull()
	must(t, err)
	defer unix.Close(null)
	mnt, err := unix.OpenTree(null, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	must(t, err)
	defer unix.Close(mnt)
	id, err := Attach(mnt, target)
	must(t, err)
	must(t, d.Verify(target.Path(), id))
	if got, err := d.Stat(target.Path()); err != nil || got.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("%+v, %v", got, err)
	}
	// The same file mounted again is another mount.
	mnt, err = unix.OpenTree(null, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	must(t, err)
	defer unix.Close(mnt)
	over, err := d.Resolve(target.Path(), KindAnyNonLink)
	must(t, err)
	defer over.Close()
	second, err := Attach(mnt, over)
	must(t, err)
	if !second.SameObject(id) {
		t.Error("not the same file")
	}
	wantErr(t, d.Verify(target.Path(), id), ErrRaced)
	must(t, d.Verify(target.Path(), second))
	// A mount on top is another one.
	top := detachedTmpfs(t)
	again, err := d.Resolve(inRoot(t, "data"), KindDir)
	must(t, err)
	defer again.Close()
	below := again.ID()
	_, err = Attach(top, again)
	must(t, err)
	wantErr(t, d.Verify(inRoot(t, "data"), below), ErrRaced)
}

// A04, D7: the target is moved out of the root under the descriptor. The mount
// goes with it; that is noticed and undone.
func TestATargetThatIsMovedOutIsNoticed(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir vol")
	base := filepath.Dir(dir)
	for _, replace := range []bool{false, true} {
		must(t, os.MkdirAll(dir+"/vol/t", 0o755))
		target, err := d.Resolve(inRoot(t, "vol/t"), KindDir)
		must(t, err)
		must(t, os.Rename(dir+"/vol/t", base+"/stolen"))
		if replace {
			must(t, os.Mkdir(dir+"/vol/t", 0o755))
		}
		mnt := detachedTmpfs(t)
		id, err := Attach(mnt, target)
		must(t, err)
		if got := markers(t); len(got) != 1 || got[0] != base+"/stolen" {
			t.Fatalf("control case: the mount did not follow: %q", got)
		}
		wantErr(t, d.Verify(target.Path(), id), ErrRaced)
		must(t, Detach(mnt))
		if got := markers(t); len(got) != 0 {
			t.Fatalf("left: %q", got)
		}
		must(t, target.Close())
		must(t, os.Remove(base+"/stolen"))
	}
}

// A04 with a volume: the target is moved out of what is mounted in the root.
// No path leads to the mount then, but it is there.
func TestATargetThatIsMovedOutOfItsVolumeIsNoticed(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir vol")
	volume := tempDir(t)
	must(t, os.MkdirAll(volume+"/shared/t", 0o755))
	bind(t, volume+"/shared", dir+"/vol")
	target, err := d.Resolve(inRoot(t, "vol/t"), KindDir)
	must(t, err)
	defer target.Close()
	must(t, os.Rename(volume+"/shared/t", volume+"/t"))
	mnt := detachedTmpfs(t)
	id, err := Attach(mnt, target)
	must(t, err)
	wantErr(t, os.Remove(volume+"/t"), unix.EBUSY) // control case: it went along
	wantErr(t, d.Verify(target.Path(), id), ErrRaced)
	must(t, Detach(mnt))
	must(t, os.Remove(volume+"/t"))
}

// I14: a tree that was opened in the shim's mount namespace is no mount target.
func TestTheShimsOwnNamespaceIsNoTarget(t *testing.T) {
	privateMounts(t)
	d, _ := root(t, "dir a/b")
	sub, err := d.Sub(MustRel("a"))
	must(t, err)
	defer sub.Close()
	for _, tree := range []*Dir{d, strict(t, d), sub} {
		target, err := tree.Resolve(inRoot(t, "/"), KindDir)
		must(t, err)
		_, err = Attach(detachedTmpfs(t), target)
		wantErr(t, err, ErrPolicy)
		must(t, target.Close())
	}
	if got := markers(t); len(got) != 0 {
		t.Errorf("mounted at %q", got)
	}
}

// T22: attributes are added and taken, never replaced.
func TestSetAttrIsADelta(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir data")
	mnt := detachedTmpfs(t)
	must(t, SetAttr(mnt, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, 0, false))
	must(t, SetAttr(mnt, unix.MOUNT_ATTR_RDONLY, 0, true))
	must(t, SetAttr(mnt, unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME, true))
	target, err := d.Resolve(inRoot(t, "data"), KindDir)
	must(t, err)
	defer target.Close()
	_, err = Attach(mnt, target)
	must(t, err)
	opts := func() string {
		m := hierarchyMounts(t, filepath.Join(dir, "data"))
		return m[len(m)-1].Options
	}
	if got := opts(); got != "ro,nosuid,nodev,noexec,noatime" {
		t.Errorf("options %q", got)
	}
	must(t, SetAttr(mnt, 0, unix.MOUNT_ATTR_NOEXEC, false))
	if got := opts(); got != "ro,nosuid,nodev,noatime" {
		t.Errorf("options %q", got)
	}
	wantErr(t, SetAttr(mnt, unix.MOUNT_ATTR_RDONLY, unix.MOUNT_ATTR_RDONLY, false), unix.EINVAL)
	wantErr(t, SetAttr(-1, unix.MOUNT_ATTR_RDONLY, 0, false), unix.EBADF)
	wantErr(t, os.WriteFile(filepath.Join(dir, "data/f"), nil, 0o600), unix.EROFS)
}

// A44: roots of other kinds.
func TestRootsOnOtherFilesystems(t *testing.T) {
	t.Run("overlay", func(t *testing.T) {
		privateMounts(t)
		base := tempDir(t)
		tmpfs(t, base) // upper and work need a filesystem that is not an overlay
		plant(t, base, "file lower/etc/passwd root", "link lower/l /etc", "dir upper", "dir work", "dir merged")
		err := unix.Mount("overlay", base+"/merged", "overlay", 0,
			"lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work")
		if err != nil {
			t.Skipf("no overlayfs here: mount: %v", err)
		}
		d := adopt(t, base+"/merged")
		buf := make([]byte, 16)
		n, err := d.ReadHead(inRoot(t, "l/passwd"), buf)
		if err != nil || string(buf[:n]) != "root" {
			t.Errorf("%q, %v", buf[:n], err)
		}
		target, err := d.MkTarget(inRoot(t, "/l/new/dir"), KindDir, 0o755)
		must(t, err)
		must(t, target.Close())
		if _, err := os.Stat(base + "/upper/etc/new/dir"); err != nil {
			t.Error(err)
		}
	})
	t.Run("bind with mounts below", func(t *testing.T) {
		privateMounts(t)
		d, dir := mountable(t, "dir a/m", "link l a/m/x")
		tmpfs(t, dir+"/a/m")
		plant(t, dir, "dir a/m/x/y")
		target, err := d.Resolve(inRoot(t, "l/y"), KindDir)
		must(t, err)
		defer target.Close()
		if target.ID().SameMount(d.ID()) || target.ID().FSType != unix.TMPFS_MAGIC {
			t.Errorf("%+v", target.ID())
		}
		up, err := d.Stat(inRoot(t, "a/m/x/../../../../.."))
		if err != nil || !up.SameObject(d.ID()) {
			t.Errorf("up through a mount: %+v, %v", up, err)
		}
		made, err := d.MkTarget(inRoot(t, "l/new"), KindReg, 0o600)
		must(t, err)
		must(t, made.Close())
	})
	t.Run("nosymfollow", func(t *testing.T) {
		privateMounts(t)
		dir := tempDir(t)
		const nosymfollow = 0x100 // MS_NOSYMFOLLOW, Linux 5.10
		if err := unix.Mount("ibex-test", dir, "tmpfs", nosymfollow, ""); err != nil {
			t.Skipf("no nosymfollow: mount: %v", err)
		}
		plant(t, dir, "dir real", "link l real", "file real/f x")
		d := adopt(t, dir)
		_, err := d.Resolve(inRoot(t, "l"), KindDir)
		wantErr(t, err, unix.ELOOP, ErrEscape)
		target, err := d.Resolve(inRoot(t, "real"), KindDir)
		must(t, err)
		must(t, target.Close())
	})
}

// A45: a lookup that waits for an automount can be waited for by the caller
// with a limit, and holds nothing up meanwhile.
func TestAnAutomountPointDoesNotHoldUpOthers(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir auto", "dir other", "link l auto/x")
	cmd, _ := start(t) // any process group but ours is the daemon's
	var p [2]int
	must(t, unix.Pipe2(p[:], unix.O_CLOEXEC))
	defer unix.Close(p[0])
	opts := "fd=" + strconv.Itoa(p[1]) + ",pgrp=" + strconv.Itoa(cmd.Process.Pid) + ",minproto=5,maxproto=5,indirect"
	err := unix.Mount("ibex-test", dir+"/auto", "autofs", 0, opts)
	_ = unix.Close(p[1])
	if err != nil {
		t.Skipf("no autofs here: mount: %v", err)
	}
	for _, path := range []string{"auto/x", "l"} {
		done := make(chan error, 1)
		go func() {
			_, err := d.Resolve(inRoot(t, path), KindDir)
			done <- err
		}()
		fds := []unix.PollFd{{Fd: int32(p[0]), Events: unix.POLLIN}}
		if n, _ := unix.Poll(fds, 5000); n != 1 {
			t.Fatalf("%s did not trigger the automount", path)
		}
		packet := make([]byte, 4096)
		must(t, second(unix.Read(p[0], packet)))
		select {
		case err := <-done:
			t.Errorf("%s did not wait: %v", path, err)
		default:
		}
		target, err := d.Resolve(inRoot(t, "other"), KindDir) // nothing is locked
		must(t, err)
		must(t, target.Close())
		// The daemon gives up: AUTOFS_IOC_FAIL with the packet's token.
		root, err := unix.Open(dir+"/auto", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		token := int(uint32(packet[8]) | uint32(packet[9])<<8 | uint32(packet[10])<<16 | uint32(packet[11])<<24)
		must(t, unix.IoctlSetInt(root, 0x9361, token))
		_ = unix.Close(root)
		select {
		case err := <-done:
			wantErr(t, err, unix.ENOENT)
		case <-time.After(5 * time.Second):
			t.Fatalf("%s hangs", path)
		}
	}
	// In a host tree the lookup ends at the mount, without waking the daemon.
	must(t, os.Chmod(dir, 0o700))
	s, err := OpenState(dir)
	must(t, err)
	defer s.Close()
	_, err = s.Sub(MustRel("auto/x"))
	wantErr(t, err, ErrEscape, unix.EXDEV)
	fds := []unix.PollFd{{Fd: int32(p[0]), Events: unix.POLLIN}}
	if n, _ := unix.Poll(fds, 0); n != 0 {
		t.Error("NO_XDEV triggers the automount on this kernel")
	}
}

// CVE-2017-1002101, T10: the source of a bind mount is resolved once.
func TestOpenSource(t *testing.T) {
	dir := tempDir(t)
	plant(t, dir, "dir real", "file f x", "link l real", "fifo p")
	for _, path := range []string{"real", "f", "l", "p"} {
		n, id, err := OpenSource(filepath.Join(dir, path))
		must(t, err)
		if id.Ino != inode(t, filepath.Join(dir, path)) {
			t.Errorf("%s: %+v", path, id)
		}
		if fl, _ := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0); fl&unix.O_PATH == 0 {
			t.Errorf("%s was opened: flags %#x", path, fl)
		}
		_ = unix.Close(n)
	}
	for _, path := range []string{"", "relative", dir + "/f\x00x", "/" + strings.Repeat("a", 4096)} {
		if n, _, err := OpenSource(path); err == nil {
			t.Errorf("%.20q gave descriptor %d", path, n)
		}
	}
	_, _, err := OpenSource(dir + "/missing")
	wantErr(t, err, unix.ENOENT)
}

func TestOpenNamespace(t *testing.T) {
	dir := tempDir(t)
	self := "/proc/self/ns/"
	plant(t, dir, "link net "+self+"net", "fifo p", "file f x")
	for _, path := range []string{self + "net", dir + "/net"} {
		n, err := OpenNamespace(path, unix.CLONE_NEWNET)
		must(t, err)
		_ = unix.Close(n)
	}
	opened := watchOpens(t, dir+"/f")
	defer func() {
		if opened() {
			t.Error("a file that is no namespace was opened")
		}
	}()
	for path, nstype := range map[string]int{
		self + "net":  unix.CLONE_NEWUTS, // the wrong type
		dir + "/p":    unix.CLONE_NEWNET, // would block
		dir + "/f":    unix.CLONE_NEWNET,
		dir:           unix.CLONE_NEWNET,
		"/dev/null":   unix.CLONE_NEWNET,
		"/proc/self/": unix.CLONE_NEWPID,
	} {
		_, err := OpenNamespace(path, nstype)
		wantErr(t, err, ErrType)
	}
	wantErr(t, second(OpenNamespace("net", unix.CLONE_NEWNET)), unix.EINVAL)
	wantErr(t, checkNS(dirfd(t, dir), "x", unix.CLONE_NEWNET), ErrType)
	wantErr(t, second(OpenNamespace(dir+"/missing", unix.CLONE_NEWNET)), unix.ENOENT)
}

// CVE-2025-31133: what is not the null device does not pass for it.
func TestOpenDevNull(t *testing.T) {
	n, err := OpenDevNull()
	must(t, err)
	defer unix.Close(n)
	must(t, second(unix.Write(n, []byte("x"))))
	if fl, _ := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0); fl&unix.O_NONBLOCK != 0 || fl&unix.O_ACCMODE != unix.O_RDWR {
		t.Errorf("flags %#x", fl)
	}
	t.Run("another device in its place", func(t *testing.T) {
		privateMounts(t)
		for _, fake := range []string{"/dev/zero", "/etc/hostname"} {
			bind(t, fake, "/dev/null")
			_, err := OpenDevNull()
			wantErr(t, err, ErrType)
			must(t, unix.Unmount("/dev/null", unix.MNT_DETACH))
		}
		link := filepath.Join(tempDir(t), "dev")
		plant(t, link, "link null /dev/zero")
		bind(t, link, "/dev")
		_, err := OpenDevNull()
		wantErr(t, err, unix.ELOOP)
		must(t, unix.Unmount("/dev", unix.MNT_DETACH))
	})
}
