package pathsafe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func openProc(t *testing.T, subset bool) *Proc {
	t.Helper()
	p, err := OpenProc(subset)
	must(t, err)
	return closing(t, p)
}

func content(t *testing.T, f *File, err error) string {
	t.Helper()
	must(t, err)
	defer f.Close()
	text, err := f.readAll(1 << 20)
	must(t, err)
	return string(text)
}

func TestASubsetProcfsHoldsProcessesOnly(t *testing.T) {
	p, full := openProc(t, true), openProc(t, false)
	for _, path := range []string{"sys/kernel/core_pattern", "sysrq-trigger", "kcore", "cmdline"} {
		if _, err := p.openProc(path, unix.O_RDONLY); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: %v", path, err)
		}
	}
	content(t, first(full.openProc("cmdline", unix.O_RDONLY)), nil)
	f, err := p.Self(MustRel("status"))
	if got := content(t, f, err); !strings.Contains(got, "\nTgid:\t"+strconv.Itoa(os.Getpid())+"\n") {
		t.Errorf("status of another process:\n%s", got)
	}
	for _, path := range []string{"thread-self/exe", "thread-self/root/etc/passwd", "thread-self/fd/0", "self/cwd"} {
		_, err := p.openProc(path, unix.O_RDONLY)
		wantErr(t, err, ErrEscape)
	}
	for _, rel := range []string{"root/etc/passwd", "exe"} {
		_, err := p.Self(MustRel(rel))
		wantErr(t, err, ErrEscape)
	}
}

func first[A any](a A, _ error) A { return a }

// A35, CVE-2019-16884, CVE-2025-52881: whatever is mounted over the host's
// /proc, ours is as the kernel made it.
func TestMountsOverProcDoNotMatter(t *testing.T) {
	privateMounts(t)
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace of our own: unshare: %v", err)
	}
	before, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	must(t, err)
	self := "/proc/" + strconv.Itoa(os.Getpid()) + "/task/" + strconv.Itoa(unix.Gettid())
	bind(t, "/proc/self/sched", self+"/oom_score_adj")
	bind(t, "/proc/sys/kernel/core_pattern", "/proc/sys/net/ipv4/ip_forward")
	p := openProc(t, false)
	// The control: by path, the write goes to the other file. It is a harmless one
	// with the value it has.
	if got, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward"); !bytes.Equal(got, before) {
		t.Errorf("control case reads %q, %v", got, err)
	}
	must(t, p.WriteSysctl("net.ipv4.ip_forward", "1"))
	tmpfs(t, "/proc/sys")
	must(t, p.WriteSysctl("net.ipv4.ip_forward", "0"))
	must(t, p.WriteSysctl("net.ipv4.ip_forward", "1"))
	f, err := p.openProc("sys/net/ipv4/ip_forward", unix.O_RDONLY)
	if got := content(t, f, err); got != "1\n" {
		t.Errorf("ip_forward is %q", got)
	}
	must(t, unix.Unmount("/proc/sys", unix.MNT_DETACH))
	if after, _ := os.ReadFile("/proc/sys/kernel/core_pattern"); !bytes.Equal(before, after) {
		t.Errorf("core_pattern was %q, is %q", before, after)
	}
	if f, err := p.Self(MustRel("oom_score_adj")); strings.Contains(content(t, f, err), "se.exec") {
		t.Error("read the file that is mounted over it")
	}
	// A whole procfs of lies.
	tmpfs(t, "/proc")
	f, err = p.Self(MustRel("status"))
	content(t, f, err)
	_, err = MountInfo()
	must(t, err)
}

// A36: since Linux 6.15 something can be mounted inside a detached tree by
// whoever holds its descriptor.
func TestMountsInsideOurProcfsAreRefused(t *testing.T) {
	p := openProc(t, true)
	pid := strconv.Itoa(os.Getpid())
	dir, err := unix.Openat(p.FD(), pid, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(dir)
	fake := detachedTmpfs(t)
	if err := unix.MoveMount(fake, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		t.Skipf("nothing can be mounted in a detached tree before Linux 6.15: move_mount: %v", err)
	}
	for _, path := range []string{"self/status", pid + "/status"} {
		_, err := p.openProc(path, unix.O_RDONLY)
		wantErr(t, err, ErrEscape, unix.EXDEV)
	}
	_, err = p.Self(MustRel("status"))
	wantErr(t, err, ErrEscape, unix.EXDEV)
	_, err = p.magic("self", "root", unix.O_PATH)
	wantErr(t, err, ErrEscape, unix.EXDEV)
}

// detachedTmpfs makes a tmpfs that is mounted nowhere.
func detachedTmpfs(t *testing.T) int {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(fs)
	must(t, unix.FsconfigSetString(fs, "source", "ibex-test-marker"))
	must(t, unix.FsconfigCreate(fs))
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(mnt) })
	return mnt
}

func start(t *testing.T) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(pidfd) })
	return cmd, pidfd
}

func TestFilesOfAProcess(t *testing.T) {
	p := openProc(t, true)
	cmd, pidfd := start(t)
	pid := cmd.Process.Pid
	f, err := p.Pid(pidfd, pid, MustRel("status"))
	if got := content(t, f, err); !strings.Contains(got, "\nPid:\t"+strconv.Itoa(pid)+"\n") {
		t.Errorf("status of another process:\n%s", got)
	}
	must(t, p.WritePid(pidfd, pid, MustRel("oom_score_adj"), []byte("500")))
	f, err = p.Pid(pidfd, pid, MustRel("oom_score_adj"))
	if got := content(t, f, err); got != "500\n" {
		t.Errorf("oom_score_adj is %q", got)
	}
	_, err = p.Pid(pidfd, pid, MustRel("no.such.file"))
	wantErr(t, err, unix.ENOENT)
	if errors.Is(err, ErrGone) {
		t.Error("a missing file is taken for a missing process")
	}
	for _, bad := range []int{0, -1} {
		_, err = p.Pid(pidfd, bad, MustRel("status"))
		wantErr(t, err, unix.EINVAL)
	}
	_, err = p.Pid(-1, pid, MustRel("status"))
	wantErr(t, err, unix.EBADF)
	held, err := p.Pid(pidfd, pid, MustRel("status"))
	must(t, err)
	defer held.Close()
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, err = p.Pid(pidfd, pid, MustRel("status"))
	wantErr(t, err, ErrGone)
	_, err = held.ReadAt0(make([]byte, 8192))
	wantErr(t, err, ErrGone, unix.ESRCH)
	_, err = p.Root(pidfd, pid)
	wantErr(t, err, ErrGone)
	_, err = p.NS(pidfd, pid, "net")
	wantErr(t, err, ErrGone)
}

// A37: the number is another process's when the file is opened, or just after.
func TestARecycledPidIsNoticed(t *testing.T) {
	for name, nr := range map[string]int{"before the open": unix.SYS_OPENAT2, "after the open": unix.SYS_PIDFD_SEND_SIGNAL} {
		t.Run(name, func(t *testing.T) {
			p := openProc(t, true)
			cmd, pidfd := start(t)
			pid := cmd.Process.Pid
			var done bool
			var cloneErr error
			mu := gate(t, func(int, int) verdict {
				if !done {
					done = true
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
					cloneErr = cloneWithPid(t, pid)
				}
				return pass
			}, nr)
			_, err := p.Pid(pidfd, pid, MustRel("status"))
			mu.Lock()
			defer mu.Unlock()
			if cloneErr != nil {
				t.Skipf("cannot choose a process number: clone3: %v", cloneErr)
			}
			wantErr(t, err, ErrGone, unix.ESRCH)
			if unix.Kill(pid, 0) != nil {
				t.Error("the number was not recycled")
			}
		})
	}
}

func TestRootAndNamespacesOfAProcess(t *testing.T) {
	p := openProc(t, true)
	cmd, pidfd := start(t)
	pid := cmd.Process.Pid
	d, err := p.Root(pidfd, pid)
	must(t, err)
	defer d.Close()
	if d.ID().Ino != inode(t, "/") || d.Policy() != PolicyRootfs {
		t.Errorf("%v: %+v", d, d.ID())
	}
	if id, err := d.Stat(inRoot(t, "/bin/sleep")); err != nil || id.Mode&0o111 == 0 {
		t.Errorf("/bin/sleep: %+v, %v", id, err)
	}
	for name, nstype := range nsTypes {
		n, err := p.NS(pidfd, pid, name)
		if name == "time" && errors.Is(err, unix.ENOENT) {
			continue // CONFIG_TIME_NS
		}
		must(t, err)
		if got, err := unix.IoctlRetInt(n, unix.NS_GET_NSTYPE); err != nil || got != nstype {
			t.Errorf("%s: type %#x, %v", name, got, err)
		}
		_ = unix.Close(n)
	}
	for _, bad := range []string{"", "../root", "net/../../root", "pid_for_children", "foo"} {
		if n, err := p.NS(pidfd, pid, bad); err == nil {
			t.Errorf("%q gave descriptor %d", bad, n)
		}
	}
}

// A38, on a live value of the test's own namespace.
func TestWriteSysctl(t *testing.T) {
	privateMounts(t)
	if err := unix.Unshare(unix.CLONE_NEWIPC | unix.CLONE_NEWUTS); err != nil {
		t.Skipf("no namespaces of our own: unshare: %v", err)
	}
	p := openProc(t, false)
	must(t, p.WriteSysctl("kernel.msgmax", "4096"))
	must(t, p.WriteSysctl("kernel/sem", "250 32000 100 128"))
	must(t, p.WriteSysctl("kernel.domainname", "ibex.example"))
	for key, val := range map[string]string{
		"kernel.core_pattern":  "core",
		"kernel.msgmax":        "1\n2",
		"kernel.shmmax":        "1\x00",
		"kernel.msgmni":        strings.Repeat("1", 5000),
		"net/../kernel/msgmax": "1",
	} {
		wantErr(t, p.WriteSysctl(key, val), unix.EINVAL)
	}
	// The kernel's own refusals come through.
	wantErr(t, p.WriteSysctl("kernel.msgmax", "x"), unix.EINVAL)
	wantErr(t, p.WriteSysctl("net.no_such_key", "1"), unix.ENOENT)
	// A value that the kernel cuts short does not pass for set.
	wantErr(t, p.WriteSysctl("kernel.domainname", strings.Repeat("d", 100)), ErrMismatch)
	// Neither does one on a procfs that has no values.
	wantErr(t, openProc(t, true).WriteSysctl("kernel.msgmax", "4096"), unix.ENOENT)
}
