package plan

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

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
		b.SetMempolicy(3, []byte{1}) // MPOL_INTERLEAVE
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
		if got, err := os.ReadFile(proc + "numa_maps"); err == nil && !strings.Contains(string(got), " interleave:0") {
			t.Errorf("memory policy %.60q", got)
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
	// No mask of the thread that forks is inherited; what is ignored stays so.
	blocked, ignored := status(func(*Builder) {})
	if blocked != "0000000000000000" || ignored[len(ignored)-3:] != "800" {
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
