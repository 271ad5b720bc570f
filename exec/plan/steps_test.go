package plan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
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
