package plan

import (
	"testing"

	"golang.org/x/sys/unix"
)

// everyStep builds a plan with every kind of step, every form of operand and
// every modifier. It is for printing and parsing; it makes no sense to run.
func everyStep(t testing.TB) *Plan {
	t.Helper()
	b := NewBuilder()
	buf, small := b.NewBuf(4096), b.NewBuf(16)
	stat := b.NewBuf(StatxSize)
	rootfs, sock, netns := Num(7, "rootfs"), Num(8, "sock"), Num(9, "net of pod \"a\"\n")
	later, end, child := b.NewLabel(), b.NewLabel(), b.NewLabel()

	s := b.Openat2(rootfs, "proc", unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	b.OnError(later, unix.ENOENT, unix.ENOTDIR)
	b.Openat2(Cwd, "a\n\"b\" \xff é", unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY | 1<<40, Mode: 0o644})
	b.Into(s)
	b.Tolerate(unix.EEXIST, unix.Errno(4000))
	b.Close(s.FD())
	b.CloseRange(3, 1<<32-1)
	b.Dup3(s.FD(), 0, unix.O_CLOEXEC)
	b.Tolerate(unix.EINVAL)
	b.Place(later)
	b.Read(sock, small, 8)
	b.Want(8)
	b.OnZero(end)
	b.Write(sock, []byte("a\x00b"))
	b.WriteBuf(sock, buf, 12)
	b.Want(12)
	b.WriteSlot(sock, s)
	b.SendFD(sock, s.FD(), []byte("p"))

	b.Setns(netns, unix.CLONE_NEWNET)
	b.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWTIME)
	pid := b.Clone(unix.CLONE_PARENT)
	b.OnZero(child)
	b.WriteSlot(sock, pid)
	b.Exit(0)
	b.Place(child)

	fs := b.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	b.FsconfigString(fs.FD(), "size", "64m")
	b.FsconfigFlag(fs.FD(), "ro")
	b.FsconfigFD(fs.FD(), "lowerdir+", rootfs)
	b.FsconfigCreate(fs.FD())
	mnt := b.Fsmount(fs.FD(), unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	tree := b.OpenTree(rootfs, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	b.OnSuccess(end)
	b.MoveMount(mnt.FD(), "", tree.FD(), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	b.MountSetattr(tree.FD(), "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY, Attr_clr: unix.MOUNT_ATTR__ATIME, Propagation: unix.MS_PRIVATE,
	})
	b.MountSetattr(tree.FD(), "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: 11})
	b.MountSetattrUserns(tree.FD(), "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP}, s.FD())
	b.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	b.Umount2(".", unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	b.PivotRoot(".", ".")

	b.Fchdir(rootfs)
	b.Chdir("/srv")
	b.Chroot(".")
	b.Getcwd(buf)
	b.Mkdirat(rootfs, "dev", 0o755)
	b.Mknodat(rootfs, "dev/null", unix.S_IFCHR|0o666, unix.Mkdev(1, 3))
	b.Symlinkat("/proc/self/fd", rootfs, "dev/fd")
	b.Unlinkat(rootfs, "old", unix.AT_REMOVEDIR)
	b.Readlinkat(rootfs, "link", buf)
	b.Fchown(rootfs, 1000, -1)
	b.Fchownat(rootfs, "f", 0, 5, unix.AT_SYMLINK_NOFOLLOW)
	b.Fchmod(rootfs, 0o1777)
	b.Fchmodat(rootfs, "f", 0)
	b.Umask(0o22)
	b.Statx(s.FD(), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, stat)

	b.Setsid()
	b.Result()
	b.Ioctl(Num(0, "stdin"), unix.TIOCSCTTY, 1)
	b.Ioctl(Num(0, "stdin"), 0x1234, 0)
	b.Setgroups([]uint32{10, 4294967294})
	b.Setgroups(nil)
	b.Setresuid(1000, 1000, 1<<32-1)
	b.Setresgid(1000, 1000, 1000)
	b.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	b.Prctl(999, 1, 2, 3, ^uintptr(0))
	b.Capset(0x1f_ffff_ffff, 1, 0)
	b.Prlimit(unix.RLIMIT_NOFILE, 1024, unix.RLIM_INFINITY)
	b.Prlimit(77, 0, 1)
	b.SetHostname("web1")
	b.SetDomainname("")
	b.KeyctlJoinSession("ses")
	b.Tolerate(unix.ENOSYS, unix.EPERM)
	b.RtSigprocmaskClear()
	b.RtSigactionDefault(int(unix.SIGPIPE))
	b.RtSigactionDefault(40)
	b.Seccomp(unix.SECCOMP_FILTER_FLAG_LOG, []unix.SockFilter{{Code: 0x20, K: 4}, {Code: 0x15, Jt: 1, Jf: 2, K: 0xc000003e}, {Code: 6, K: 0x7fff0000}})
	b.Personality(8)
	b.IoprioSet(1, 0, 2<<13|4)
	b.SchedSetattr(unix.SchedAttr{Policy: 3, Flags: 1, Nice: -5, Priority: 1, Runtime: 2, Deadline: 3, Period: 4, Util_min: 5, Util_max: 6})
	b.SchedSetaffinity([]byte{3})
	b.SetMempolicy(0x8003, []byte{1})
	b.Getpid()
	b.ExpectByte(buf, 4095, '/', unix.EXDEV)
	b.ExpectEqual64(stat, 248, small, 8, unix.ESTALE)
	b.OnError(end, unix.ESTALE)
	b.ExecveBuf(buf, []string{"x"}, []string{})
	b.Tolerate(unix.ENOENT)
	b.Place(end)
	b.Execve("/bin/app", []string{"app", "-c", "a b\tc", ""}, []string{"PATH=/bin:/usr/bin", "TOKEN=s3cret", "EMPTY=", "odd"})
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheSampleHasEveryKindOfStep(t *testing.T) {
	seen := map[kind]bool{}
	for _, o := range everyStep(t).ops {
		seen[o.kind] = true
	}
	for k := range specs {
		if !seen[kind(k)] {
			t.Errorf("no %s in the sample", specs[k].name)
		}
	}
}
