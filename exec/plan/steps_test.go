package plan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hold runs the steps of build in a child, calls look while the child waits
// after them, and then lets it end. Everything must succeed.
func hold(t *testing.T, flags uint64, build func(b *Builder, sock FD), look func(pid int, proc string, msgs [][]byte)) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	b := NewBuilder()
	sock := Num(pair[1], "sock")
	// Its copy of our end would keep the child waiting if the test died.
	b.Close(Num(pair[0], "test"))
	build(b, sock)
	b.Write(sock, []byte("ready"))
	b.Read(sock, b.NewBuf(8), 1)
	b.Want(1)
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		unix.Close(pair[1])
		t.Fatal(err)
	}
	pid, pidfd, err := p.Fork(ForkOptions{Flags: flags, CgroupFD: -1, Sock: pair[1]})
	unix.Close(pair[1])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	var msgs [][]byte
	for {
		buf := make([]byte, 4096)
		n, err := unix.Read(pair[0], buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("the child ended early: %v, exit code %d", err, wait(t, pid))
		}
		if f, ok := ParseFailure(buf[:n]); ok {
			wait(t, pid)
			t.Fatal(p.Error(f))
		}
		if string(buf[:n]) == "ready" {
			break
		}
		msgs = append(msgs, buf[:n])
	}
	if look != nil {
		look(pid, fmt.Sprintf("/proc/%d/", pid), msgs)
	}
	if _, err := unix.Write(pair[0], []byte("x")); err != nil {
		t.Error(err)
	}
	if code := wait(t, pid); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func field(t *testing.T, file, key string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, key); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	t.Fatalf("no %q in %s", key, file)
	return ""
}

func openDir(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func readlink(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func slotValue(msg []byte) int64 { return int64(binary.NativeEndian.Uint64(msg)) }

func TestDescriptorSteps(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/f", []byte("content"), 0o600)
	root := openDir(t, dir)
	hold(t, 0, func(b *Builder, sock FD) {
		f := b.Openat2(Num(root, "root"), "/f", unix.OpenHow{Flags: unix.O_RDWR, Resolve: unix.RESOLVE_IN_ROOT})
		buf := b.NewBuf(64)
		b.Read(f.FD(), buf, 64)
		b.Want(7)
		b.ExpectByte(buf, 6, 't', unix.EIO)
		b.WriteBuf(f.FD(), buf, 3)
		b.Write(f.FD(), []byte("\x00end"))
		b.WriteSlot(sock, f)
		b.SendFD(sock, f.FD(), []byte("fd"))
		b.Dup3(f.FD(), 700, 0)
		b.Dup3(f.FD(), 701, unix.O_CLOEXEC)
		b.Close(f.FD())
		b.Dup3(sock, 702, 0)
		b.CloseRange(701, 701)
	}, func(_ int, proc string, msgs [][]byte) {
		if got, _ := os.ReadFile(dir + "/f"); string(got) != "contentcon\x00end" {
			t.Errorf("file holds %q", got)
		}
		if readlink(t, proc+"fd/700") != dir+"/f" {
			t.Error("dup3 did not copy the descriptor")
		}
		fd := slotValue(msgs[0])
		for _, closed := range []int64{fd, 701} {
			if _, err := os.Readlink(fmt.Sprintf("%sfd/%d", proc, closed)); err == nil {
				t.Errorf("descriptor %d is open", closed)
			}
		}
		readlink(t, proc+"fd/702")
	})
}

func TestSendFDPassesADescriptor(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	hold(t, 0, func(b *Builder, _ FD) {
		s := b.Openat2(Cwd, "/etc/passwd", unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
		b.SendFD(Num(pair[1], "other"), s.FD(), []byte("here"))
	}, nil)
	data, oob := make([]byte, 16), make([]byte, 64)
	n, oobn, _, _, err := unix.Recvmsg(pair[0], data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || string(data[:n]) != "here" {
		t.Fatalf("data %q, %v", data[:n], err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		t.Fatalf("control messages %v, %v", msgs, err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors %v, %v", fds, err)
	}
	defer unix.Close(fds[0])
	if got := readlink(t, fmt.Sprintf("/proc/self/fd/%d", fds[0])); got != "/etc/passwd" {
		t.Errorf("descriptor of %q", got)
	}
}

func TestDirectoryAndFileSteps(t *testing.T) {
	dir := t.TempDir()
	root := Num(openDir(t, dir), "root")
	hold(t, 0, func(b *Builder, sock FD) {
		b.Umask(0o27)
		b.Mkdirat(root, "d", 0o777)
		b.Umask(0)
		b.Mknodat(root, "null", unix.S_IFCHR|0o640, unix.Mkdev(1, 3))
		b.Symlinkat("/target", root, "link")
		b.Mkdirat(root, "gone", 0o700)
		b.Unlinkat(root, "gone", unix.AT_REMOVEDIR)
		buf := b.NewBuf(64)
		b.Readlinkat(root, "link", buf)
		b.Want(7)
		b.WriteBuf(sock, buf, 7)
		f := b.Openat2(root, "f", unix.OpenHow{Flags: unix.O_CREAT | unix.O_RDWR | unix.O_CLOEXEC, Mode: 0o600})
		b.Fchown(f.FD(), 1234, -1)
		b.Fchmod(f.FD(), 0o4711)
		b.Fchmodat(root, "d", 0o1755)
		b.Fchownat(root, "link", 5, 6, unix.AT_SYMLINK_NOFOLLOW)
		// Two ways to the same file have the same inode (stx_ino at 32), two
		// files do not.
		one, two := b.NewBuf(StatxSize), b.NewBuf(StatxSize)
		b.Statx(f.FD(), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, one)
		b.Statx(root, "f", unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_MNT_ID, two)
		b.ExpectEqual64(one, 32, two, 32, unix.ESTALE)
		b.Statx(root, "d", unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, two)
		other := b.NewLabel()
		b.ExpectEqual64(one, 32, two, 32, unix.ESTALE)
		b.OnError(other, unix.ESTALE)
		b.Exit(9)
		b.Place(other)
		b.Fchdir(root)
		b.Chdir("d")
		b.Getcwd(buf)
		b.ExpectByte(buf, 0, '/', unix.EXDEV)
	}, func(_ int, proc string, msgs [][]byte) {
		if string(msgs[0]) != "/target" {
			t.Errorf("readlinkat gave %q", msgs[0])
		}
		if got := readlink(t, proc+"cwd"); got != dir+"/d" {
			t.Errorf("working directory %q", got)
		}
		for _, tt := range []struct {
			name     string
			mode     uint32
			uid, gid uint32
			rdev     uint64
		}{
			{"d", unix.S_IFDIR | 0o1755, 0, 0, 0},
			{"null", unix.S_IFCHR | 0o640, 0, 0, unix.Mkdev(1, 3)},
			{"link", unix.S_IFLNK | 0o777, 5, 6, 0},
			{"f", unix.S_IFREG | 0o4711, 1234, 0, 0},
		} {
			var st unix.Stat_t
			if err := unix.Lstat(dir+"/"+tt.name, &st); err != nil {
				t.Error(err)
				continue
			}
			if st.Mode != tt.mode || st.Uid != tt.uid || st.Gid != tt.gid || st.Rdev != tt.rdev {
				t.Errorf("%s: mode %#o, owner %d:%d, device %#x; want %+v", tt.name, st.Mode, st.Uid, st.Gid, st.Rdev, tt)
			}
		}
		if _, err := os.Lstat(dir + "/gone"); !os.IsNotExist(err) {
			t.Error("unlinkat left the directory")
		}
	})
}

func TestUmaskApplies(t *testing.T) {
	hold(t, 0, func(b *Builder, _ FD) { b.Umask(0o137) }, func(_ int, proc string, _ [][]byte) {
		if got := field(t, proc+"status", "Umask:"); got != "0137" {
			t.Errorf("umask %s", got)
		}
	})
}

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

func TestNamespaceSteps(t *testing.T) {
	hold(t, unix.CLONE_NEWUTS|unix.CLONE_NEWPID, func(b *Builder, sock FD) {
		b.SetHostname("plan-host")
		b.SetDomainname("plan-domain")
		b.WriteSlot(sock, b.Getpid())
	}, func(pid int, proc string, msgs [][]byte) {
		if got := slotValue(msgs[0]); got != 1 {
			t.Errorf("pid in the new namespace is %d", got)
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pidfd)
		uts := readlink(t, proc+"ns/uts")
		hold(t, 0, func(b *Builder, _ FD) {
			b.Setns(Num(pidfd, "init"), unix.CLONE_NEWUTS)
			b.Unshare(unix.CLONE_NEWIPC)
		}, func(_ int, joined string, _ [][]byte) {
			if readlink(t, joined+"ns/uts") != uts {
				t.Error("setns did not join")
			}
			if readlink(t, joined+"ns/ipc") == readlink(t, proc+"ns/ipc") {
				t.Error("unshare did not leave")
			}
		})
		// What the child set is seen from a shell that joins it.
		code, out, _ := forkWait(t, 0, func(b *Builder, sock FD) {
			b.Setns(Num(pidfd, "init"), unix.CLONE_NEWUTS)
			b.Dup3(sock, 1, 0)
			b.Execve("/bin/cat", []string{"cat", "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname"}, nil)
		})
		if got := string(bytes.Join(out, nil)); code != 0 || got != "plan-host\nplan-domain\n" {
			t.Errorf("exit code %d, names %q", code, got)
		}
	})
}

func TestCloneMakesASiblingWithTheRestOfThePlan(t *testing.T) {
	// The outer child joins a PID namespace and clones a sibling into it.
	hold(t, unix.CLONE_NEWPID, func(*Builder, FD) {}, func(initPid int, proc string, _ [][]byte) {
		pidfd, err := unix.PidfdOpen(initPid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pidfd)
		code, msgs, p := forkWait(t, 0, func(b *Builder, sock FD) {
			inner := b.NewLabel()
			b.Setns(Num(pidfd, "init"), unix.CLONE_NEWPID)
			pid := b.Clone(unix.CLONE_PARENT)
			b.OnZero(inner)
			b.WriteSlot(sock, pid)
			b.Exit(0)
			b.Place(inner)
			b.WriteSlot(sock, b.Getpid())
			b.Chdir("/nonexistent")
			b.Exit(0)
		})
		if code != 0 || len(msgs) != 3 {
			t.Fatalf("exit code %d, %d messages; want 0 and 3", code, len(msgs))
		}
		outside := 0
		inside, failed := int64(0), false
		for _, m := range msgs {
			if f, ok := ParseFailure(m); ok {
				failed = p.Error(f).Step == `chdir "/nonexistent"`
			} else if v := slotValue(m); v > 10 {
				outside = int(v)
			} else {
				inside = v
			}
		}
		if inside != 2 || !failed {
			t.Errorf("pid inside is %d, failure reported: %v", inside, failed)
		}
		// It is our child, not that of the process that cloned it.
		if code := wait(t, outside); code != 127 {
			t.Errorf("exit code %d; want 127", code)
		}
	})
}

func TestIdentitySteps(t *testing.T) {
	hold(t, 0, func(b *Builder, sock FD) {
		b.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_BOOT, 0, 0, 0)
		b.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		b.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0)
		b.Setgroups([]uint32{7, 8, 9})
		b.Setresgid(11, 12, 13)
		b.Setresuid(21, 22, 23)
		b.Capset(1<<unix.CAP_KILL, 1<<unix.CAP_KILL|1<<unix.CAP_CHOWN|1<<unix.CAP_AUDIT_READ, 1<<unix.CAP_CHOWN)
		b.Setsid()
		sid := b.Result()
		b.WriteSlot(sock, sid)
	}, func(pid int, proc string, msgs [][]byte) {
		if got := slotValue(msgs[0]); got != int64(pid) {
			t.Errorf("setsid gave %d; want %d", got, pid)
		}
		for key, want := range map[string]string{
			"Uid:": "21 22 23 22", "Gid:": "11 12 13 12", "Groups:": "7 8 9", "NoNewPrivs:": "1",
			"CapEff:": "0000000000000020", "CapPrm:": "0000002000000021", "CapInh:": "0000000000000001",
		} {
			if got := field(t, proc+"status", key); got != want {
				t.Errorf("%s %s; want %s", key, got, want)
			}
		}
		var bnd uint64
		fmt.Sscanf(field(t, proc+"status", "CapBnd:"), "%x", &bnd)
		if bnd>>unix.CAP_SYS_BOOT&1 != 0 {
			t.Error("the bounding set still has SYS_BOOT")
		}
	})
}

func TestEmptyGroupsDropEveryGroup(t *testing.T) {
	hold(t, 0, func(b *Builder, _ FD) {
		b.Setgroups([]uint32{5})
		b.Setgroups(nil)
	}, func(_ int, proc string, _ [][]byte) {
		if got := field(t, proc+"status", "Groups:"); got != "" {
			t.Errorf("groups %q", got)
		}
	})
}

func TestLimitAndSchedulerSteps(t *testing.T) {
	hold(t, 0, func(b *Builder, _ FD) {
		b.Prlimit(unix.RLIMIT_NOFILE, 77, 88)
		b.Prlimit(unix.RLIMIT_CORE, 0, 0)
		b.Personality(0x0040000) // ADDR_NO_RANDOMIZE
		b.IoprioSet(1, 0, 2<<13|6)
		b.SchedSetattr(unix.SchedAttr{Policy: unix.SCHED_BATCH, Nice: 7})
		b.SchedSetaffinity([]byte{1})
	}, func(pid int, proc string, _ [][]byte) {
		if got := field(t, proc+"limits", "Max open files"); got != "77 88 files" {
			t.Errorf("open files %q", got)
		}
		if got, _ := os.ReadFile(proc + "personality"); strings.TrimSpace(string(got)) != "00040000" {
			t.Errorf("personality %q", got)
		}
		if prio, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, 1, uintptr(pid), 0); errno != 0 || prio != 2<<13|6 {
			t.Errorf("I/O priority %#x, %v", prio, errno)
		}
		if a, err := unix.SchedGetAttr(pid, 0); err != nil || a.Policy != unix.SCHED_BATCH || a.Nice != 7 {
			t.Errorf("scheduling %+v, %v", a, err)
		}
		if got := field(t, proc+"status", "Cpus_allowed_list:"); got != "0" {
			t.Errorf("CPUs %s", got)
		}
	})
}

func TestSignalSteps(t *testing.T) {
	signal.Ignore(unix.SIGUSR2)
	defer signal.Reset(unix.SIGUSR2)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR1 - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)

	status := func(steps func(b *Builder)) (blocked, ignored string) {
		hold(t, 0, func(b *Builder, _ FD) { steps(b) }, func(_ int, proc string, _ [][]byte) {
			blocked, ignored = field(t, proc+"status", "SigBlk:"), field(t, proc+"status", "SigIgn:")
		})
		return
	}
	blocked, ignored := status(func(*Builder) {})
	if blocked != "0000000000000200" || ignored[len(ignored)-3:] != "800" {
		t.Fatalf("without the steps: blocked %s, ignored %s", blocked, ignored)
	}
	blocked, ignored = status(func(b *Builder) {
		b.RtSigprocmaskClear()
		b.RtSigactionDefault(int(unix.SIGUSR2))
	})
	if blocked != "0000000000000000" || ignored[len(ignored)-3:] != "000" {
		t.Errorf("blocked %s, ignored %s", blocked, ignored)
	}
}

func TestSeccompLoadsTheFilter(t *testing.T) {
	filter := func(nr uint32, action uint32) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: nr},
			{Code: unix.BPF_RET | unix.BPF_K, K: action},
			{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},
		}
	}
	code, msgs, p := forkWait(t, 0, func(b *Builder, _ FD) {
		b.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		b.Seccomp(0, filter(unix.SYS_CHDIR, 0x50000|uint32(unix.EXFULL)))
		b.Chdir("/")
		b.Exit(0)
	})
	if code != 127 || len(msgs) != 1 {
		t.Fatalf("exit code %d, messages %q", code, msgs)
	}
	if f, _ := ParseFailure(msgs[0]); f.Step != 2 || unix.Errno(f.Errno) != unix.EXFULL {
		t.Errorf("%v; want EXFULL from chdir", p.Error(f))
	}
}

func TestIoctlTakesAControllingTerminal(t *testing.T) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pty: %v", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	tty, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		t.Fatal(e)
	}
	defer unix.Close(int(tty))
	hold(t, 0, func(b *Builder, sock FD) {
		b.Setsid()
		b.Ioctl(Num(int(tty), "tty"), unix.TIOCSCTTY, 0)
		s := b.Openat2(Cwd, "/dev/tty", unix.OpenHow{Flags: unix.O_RDWR | unix.O_CLOEXEC})
		b.WriteSlot(sock, s)
	}, func(pid int, _ string, _ [][]byte) {
		// /proc/PID/stat: tty_nr is the seventh field.
		stat := field(t, fmt.Sprintf("/proc/%d/stat", pid), fmt.Sprintf("%d (", pid))
		if f := strings.Fields(stat[strings.LastIndex(stat, ")"):]); f[5] == "0" {
			t.Errorf("no controlling terminal: %s", stat)
		}
	})
}

func TestKeyctlJoinsASession(t *testing.T) {
	hold(t, 0, func(b *Builder, sock FD) {
		b.KeyctlJoinSession("ibex-test-plan")
		b.WriteSlot(sock, b.Result())
	}, func(_ int, _ string, msgs [][]byte) {
		key := slotValue(msgs[0])
		if key <= 0 {
			t.Errorf("keyring %d", key)
		}
	})
}

func TestChrootChangesTheRoot(t *testing.T) {
	dir := t.TempDir()
	hold(t, 0, func(b *Builder, _ FD) {
		b.Chroot(dir)
		b.Chdir("/")
	}, func(_ int, proc string, _ [][]byte) {
		if got := readlink(t, proc+"root"); got != dir {
			t.Errorf("root %q", got)
		}
	})
}

func TestExecveBufTakesThePathFromMemory(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	unix.Write(pair[0], []byte("/bin/echo"))
	code, msgs, _ := forkWait(t, 0, func(b *Builder, sock FD) {
		path := b.NewBuf(256)
		b.Read(Num(pair[1], "paths"), path, 255)
		b.Dup3(sock, 1, 0)
		b.ExecveBuf(path, []string{"echo", "from", "a buffer"}, nil)
	})
	if code != 0 || len(msgs) != 1 || string(msgs[0]) != "from a buffer\n" {
		t.Errorf("exit code %d, output %q", code, msgs)
	}
}
