package plan

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPlanReportsEveryMistakeAtOnce(t *testing.T) {
	b := NewBuilder()
	b.Tolerate(unix.EPERM) // there is no step
	b.Chdir("a\x00b")
	b.Close(FD{})
	b.Close(Num(-7, "negative"))
	b.Close(b.NewSlot().FD())
	b.Close(Slot(77).FD())
	b.OnError(Label(9), unix.EPERM)
	never := b.NewLabel()
	b.OnSuccess(never)
	b.Tolerate(0)
	b.Tolerate(1, 2, 3, 4, 5, 6, 7, 8, 9)
	b.Tolerate(unix.EPERM)
	b.Read(Num(3, "f"), b.NewBuf(4), 5)
	b.Clone(unix.CLONE_VM)
	b.Seccomp(0, nil)
	b.SendFD(Num(3, "f"), Num(4, "g"), nil)
	b.Execve("/x", []string{"ok", "a\x00"}, nil)
	b.Setsid()
	_, err := b.Plan()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"Tolerate: there is no step", `string "a\x00b" contains a NUL`, "a descriptor has no name",
		"descriptor negative is -7", "slot 0 is used before a step fills it", "slot 77", "label 9", "label 0 is not placed",
		"errno 0", "more than 8 errnos", "EPERM", "outside buffer", "0x100 are not possible", "0 instructions",
		"data is empty", "argv[1] contains a NUL", "neither execve nor exit",
	} {
		want = strings.Replace(want, "EPERM", unix.EPERM.Error()+" is named twice", 1)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestPlanRefusesSingleMistakes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(b *Builder)
		want  string
	}{
		{"no steps", func(*Builder) {}, "no steps"},
		{"a jump backwards", func(b *Builder) {
			l := b.NewLabel()
			b.Place(l)
			b.Setsid()
			b.OnError(l, unix.EPERM)
			b.Exit(0)
		}, "lies behind"},
		{"a label after the last step", func(b *Builder) {
			l := b.NewLabel()
			b.Exit(0)
			b.OnError(l, unix.EPERM)
			b.Place(l)
		}, "not placed before a step"},
		{"a label placed twice", func(b *Builder) {
			l := b.NewLabel()
			b.Place(l)
			b.Place(l)
			b.Exit(0)
		}, "twice"},
		{"a foreign label", func(b *Builder) { b.Place(3); b.Exit(0) }, "does not belong"},
		{"a foreign buffer", func(b *Builder) { b.Getcwd(4); b.Exit(0) }, "buffer 4 does not belong"},
		{"a buffer without bytes", func(b *Builder) { b.NewBuf(0); b.Exit(0) }, "NewBuf: size 0"},
		{"too much buffer", func(b *Builder) { b.NewBuf(9 << 20); b.NewBuf(9 << 20); b.Exit(0) }, "NewBuf"},
		{"a small statx buffer", func(b *Builder) { b.Statx(Cwd, "", 0, 0, b.NewBuf(128)); b.Exit(0) }, "outside buffer"},
		{"an odd offset", func(b *Builder) {
			f := b.NewBuf(32)
			b.ExpectEqual64(f, 4, f, 8, unix.EIO)
			b.Exit(0)
		}, "multiples of 8"},
		{"an offset behind the buffer", func(b *Builder) { b.ExpectByte(b.NewBuf(8), 8, 0, unix.EIO); b.Exit(0) }, "outside buffer"},
		{"a negative offset", func(b *Builder) { b.ExpectByte(b.NewBuf(8), -1, 0, unix.EIO); b.Exit(0) }, "outside buffer"},
		{"a check without an errno", func(b *Builder) { b.ExpectByte(b.NewBuf(8), 0, 0, 0); b.Exit(0) }, "errno 0"},
		{"a result of a check", func(b *Builder) {
			b.ExpectByte(b.NewBuf(8), 0, 0, unix.EIO)
			b.Result()
			b.Exit(0)
		}, "has no result"},
		{"another exit signal", func(b *Builder) { b.Clone(uint64(unix.SIGUSR1)); b.Exit(0) }, "not SIGCHLD"},
		{"a clone3 flag", func(b *Builder) { b.Clone(unix.CLONE_INTO_CGROUP); b.Exit(0) }, "clone3"},
		{"a user namespace without IDMAP", func(b *Builder) {
			b.MountSetattrUserns(Cwd, "", 0, unix.MountAttr{}, Num(5, "ns"))
			b.Exit(0)
		}, "without IDMAP"},
		{"too many steps", func(b *Builder) {
			for range maxSteps + 1 {
				b.Setsid()
			}
			b.Exit(0)
		}, "exceed the limit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBuilder()
			tt.build(b)
			if _, err := b.Plan(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Plan = %v; want an error with %q", err, tt.want)
			}
		})
	}
}

func TestABuilderMakesOnePlan(t *testing.T) {
	b := NewBuilder()
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	b.Exit(1)
	if _, err := b.Plan(); err == nil {
		t.Error("the builder made a second plan")
	}
	if got := p.String(); got != "plan 1 step\n  0 exit 0\n" {
		t.Errorf("the first plan changed: %s", got)
	}
}

// typical is about what starting a process in a container takes.
func typical(b *Builder) {
	sock := Num(5, "sock")
	for i := range 6 {
		b.Setns(Num(10+i, "ns"), unix.CLONE_NEWNET)
	}
	f := b.NewLabel()
	pid := b.Clone(unix.CLONE_PARENT)
	b.OnZero(f)
	b.WriteSlot(sock, pid)
	b.Exit(0)
	b.Place(f)
	b.Setsid()
	for i := range 3 {
		b.Dup3(Num(20+i, "stdio"), i, 0)
	}
	cwd := b.NewBuf(4096)
	b.Chdir("/srv/app")
	b.Getcwd(cwd)
	b.ExpectByte(cwd, 0, '/', unix.EXDEV)
	b.CloseRange(6, 1<<32-1)
	for i := range 10 {
		b.Prctl(unix.PR_CAPBSET_DROP, uintptr(i), 0, 0, 0)
		b.Tolerate(unix.EINVAL)
	}
	b.Setgroups([]uint32{1, 2, 3})
	b.Setresgid(1000, 1000, 1000)
	b.Setresuid(1000, 1000, 1000)
	b.Capset(1, 1, 0)
	b.Prlimit(unix.RLIMIT_NOFILE, 1024, 4096)
	b.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	b.RtSigprocmaskClear()
	b.RtSigactionDefault(13)
	b.Umask(0o22)
	b.Execve("/usr/bin/app", []string{"app", "--flag", "value"},
		[]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=xterm", "HOSTNAME=web1"})
}

func TestCompilingATypicalPlanAllocatesLittle(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("-cover: the instrumented code allocates")
	}
	n := testing.AllocsPerRun(100, func() {
		b := NewBuilder()
		typical(b)
		if _, err := b.Plan(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 15 {
		t.Errorf("%v allocations; want at most 15", n)
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		pb := NewBuilder()
		typical(pb)
		if _, err := pb.Plan(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForkAndExit(b *testing.B) {
	pb := NewBuilder()
	pb.Exit(0)
	p, err := pb.Plan()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := forkDeep(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAHugePlanRunsAndPrints(t *testing.T) {
	var env []string
	for i := range 9 {
		env = append(env, fmt.Sprintf("V%d=%s", i, bytes.Repeat([]byte{byte('a' + i)}, 120_000)))
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/m", 0o755); err != nil {
		t.Fatal(err)
	}
	var text string
	code, msgs, p := forkWait(t, unix.CLONE_NEWNS, func(b *Builder, sock FD) {
		b.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		for range 500 {
			fs := b.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
			b.FsconfigString(fs.FD(), "size", "4k")
			b.FsconfigCreate(fs.FD())
			m := b.Fsmount(fs.FD(), unix.FSMOUNT_CLOEXEC, 0)
			b.MoveMount(m.FD(), "", Cwd, dir+"/m", unix.MOVE_MOUNT_F_EMPTY_PATH)
			b.Close(fs.FD())
			b.Close(m.FD())
		}
		b.Dup3(sock, 1, 0)
		b.Execve("/bin/sh", []string{"sh", "-c", `echo $(grep -c " $0 " /proc/self/mountinfo) ${#V0} ${#V8}`, dir + "/m"}, env)
	})
	if code != 0 || len(msgs) != 1 || string(msgs[0]) != "500 120000 120000\n" {
		t.Errorf("exit code %d, output %.100q", code, msgs)
	}
	text = p.Text()
	q, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if q.Text() != text {
		t.Error("the plan did not survive Text and Parse")
	}
}
