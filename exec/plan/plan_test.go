package plan

import (
	"testing"

	"golang.org/x/sys/unix"
)

// forkWait runs p in a child and returns its exit code (128 plus the signal if
// it was killed) and what it wrote to its end of the socket pair, whose number
// is given to build as "sock".
func forkWait(t testing.TB, flags uint64, build func(b *Builder, sock FD)) (code int, msgs [][]byte, p *Plan) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	b := NewBuilder()
	build(b, Num(pair[1], "sock"))
	p, err = b.Plan()
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
	for {
		buf := make([]byte, 8192)
		n, err := unix.Read(pair[0], buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		msgs = append(msgs, buf[:n])
	}
	return wait(t, pid), msgs, p
}

func wait(t testing.TB, pid int) int {
	t.Helper()
	var ws unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got != pid {
			t.Fatalf("wait4(%d) = %d, %v", pid, got, err)
		}
		break
	}
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func TestAForkedPlanRunsItsStepsInOrder(t *testing.T) {
	code, msgs, _ := forkWait(t, unix.CLONE_NEWNS, func(b *Builder, sock FD) {
		b.Write(sock, []byte("one"))
		s := b.Openat2(Cwd, "/etc", unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
		b.Fchdir(s.FD())
		cwd := b.NewBuf(64)
		b.Getcwd(cwd)
		b.ExpectByte(cwd, 1, 'e', unix.EXDEV)
		b.WriteBuf(sock, cwd, 5)
		b.Dup3(sock, 1, 0)
		b.Execve("/bin/sh", []string{"sh", "-c", "pwd; echo $A; exit 7"}, []string{"A=b"})
	})
	if code != 7 {
		t.Errorf("exit code = %d; want 7", code)
	}
	var got []string
	for _, m := range msgs {
		got = append(got, string(m))
	}
	want := []string{"one", "/etc\x00", "/etc\n", "b\n"}
	if len(got) != len(want) {
		t.Fatalf("messages = %q; want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("message %d = %q; want %q", i, got[i], want[i])
		}
	}
}

func TestAFailingStepSendsItsIndexAndErrno(t *testing.T) {
	code, msgs, _ := forkWait(t, 0, func(b *Builder, sock FD) {
		b.Umask(0)
		b.Chdir("/nonexistent")
		b.Exit(0)
	})
	if code != 127 || len(msgs) != 1 {
		t.Fatalf("exit code %d, messages %q; want 127 and one message", code, msgs)
	}
	f, ok := ParseFailure(msgs[0])
	if !ok || f.Step != 1 || f.Errno != uint32(unix.ENOENT) {
		t.Errorf("failure = %+v, %v; want step 1, ENOENT", f, ok)
	}
}

func TestAFailureSaysWhatTheStepWasFor(t *testing.T) {
	b := NewBuilder()
	b.About("first")
	b.Setsid()
	b.About("second (x)")
	b.Chdir("/nowhere")
	b.About("")
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"first: plan step 0", "second (x): plan step 1", "plan step 2"} {
		if got := p.Error(Failure{Step: uint32(i), Errno: 2}).Error(); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("step %d: %s", i, got)
		}
	}
}
