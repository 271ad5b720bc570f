package seccomp_test

import (
	"errors"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
)

func TestCallsNewerThanTheProfileDoNotExist(t *testing.T) {
	p := &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno,
		Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
		Syscalls:      []specs.LinuxSyscall{rule("getpid", 0), rule("statx", 5), rule("openat2", 0)},
	}
	last := number(t, specs.ArchX86_64, "openat2")
	for _, tt := range []struct {
		name string
		arch specs.Arch
		nr   uint32
		want uint32
	}{
		{"the last one that is named", specs.ArchX86_64, last, allow},
		{"the next", specs.ArchX86_64, last + 1, enosys},
		{"any number", specs.ArchX86_64, 0x3fffffff, enosys},
		{"an older one that is not named", specs.ArchX86_64, last - 1, eperm},
		{"x86", specs.ArchX86, last + 1, enosys},
		{"x32", specs.ArchX32, 0x40000000 + last + 1, enosys},
		{"the last on x32", specs.ArchX32, 0x40000000 + last, allow},
		{"an unlisted architecture", specs.ArchAARCH64, last + 1, kill},
	} {
		if got := verdict(t, p, tt.arch, tt.nr); got != tt.want {
			t.Errorf("%s: %#x; want %#x", tt.name, got, tt.want)
		}
	}
	for _, action := range []specs.LinuxSeccompAction{specs.ActAllow, specs.ActLog, specs.ActTrace} {
		p.DefaultAction = action
		if got := verdict(t, p, specs.ArchX86_64, last+1); got == enosys {
			t.Errorf("%s: a newer call has ENOSYS though the default lets it through", action)
		}
	}
	// The first number of all may be the last one.
	p = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.ArchX32}, Syscalls: []specs.LinuxSyscall{rule("read", 0)}}
	if got := verdict(t, p, specs.ArchX32, number(t, specs.ArchX32, "read")); got != allow {
		t.Errorf("x32 read, the only call: %#x; want it allowed", got)
	}
	if got := verdict(t, p, specs.ArchX32, number(t, specs.ArchX32, "write")); got != enosys {
		t.Errorf("x32 write, the next: %#x; want ENOSYS", got)
	}
	// A profile that names nothing cannot be older than anything.
	p = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{rule("frobnicate", 0)}}
	if got := verdict(t, p, specs.ArchX86_64, 1000); got != eperm {
		t.Errorf("profile without calls: %#x; want EPERM", got)
	}
}

func TestX32IsAnArchitectureOfItsOwn(t *testing.T) {
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{rule("getpid", 0), rule("ioctl", 0)}}
	x32getpid, x32ioctl := number(t, specs.ArchX32, "getpid"), number(t, specs.ArchX32, "ioctl")
	if got := verdict(t, p, specs.ArchX86_64, x32getpid); got != kill {
		t.Errorf("x32 is not listed: %#x; want the thread killed", got)
	}
	if got := verdict(t, p, specs.ArchX86_64, ^uint32(0)); got != eperm {
		t.Errorf("-1, a tracer's skipped call: %#x; want the default action", got)
	}
	p.Architectures = []specs.Arch{specs.ArchX32}
	for nr, want := range map[uint32]uint32{
		x32getpid: allow, x32ioctl: allow, unix.SYS_GETPID: allow, unix.SYS_IOCTL: allow, unix.SYS_READ: eperm,
		// x32's ioctl has a number of its own; amd64's with the bit is another call.
		0x40000000 + unix.SYS_IOCTL: eperm,
	} {
		if got := verdict(t, p, specs.ArchX86_64, nr); got != want {
			t.Errorf("nr %#x: %#x; want %#x", nr, got, want)
		}
	}
}

func TestOnlyTheLowHalfCountsWhereArgumentsHave32Bits(t *testing.T) {
	p := &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchX86},
		Syscalls: []specs.LinuxSyscall{rule("personality", 9, arg(0, specs.OpEqualTo, 0xffffffff_00000008))},
	}
	nr := number(t, specs.ArchX86, "personality")
	if got := verdict(t, p, specs.ArchX86, nr, 8); got == allow {
		t.Error("x86: the rule does not match its low half")
	}
	if got := verdict(t, p, specs.ArchX86_64, number(t, specs.ArchX86_64, "personality"), 8); got != allow {
		t.Errorf("x86_64: %#x; the rule matches only its whole value", got)
	}
}

func TestMultiplexedCallsAreFilteredInBothForms(t *testing.T) {
	p := &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.ArchX86},
		Syscalls: []specs.LinuxSyscall{
			rule("socket", 0), rule("accept", 0), rule("shmat", 0), rule("openat2", 0),
			rule("listen", 0, arg(0, specs.OpEqualTo, 77)),
		},
	}
	call := func(name string) uint32 { return number(t, specs.ArchX86, name) }
	for _, tt := range []struct {
		name    string
		nr      uint32
		op      uint64
		allowed bool
	}{
		{"socket", call("socket"), 0, true},
		{"socketcall SOCKET", call("socketcall"), 1, true},
		{"socketcall BIND", call("socketcall"), 2, false},
		{"socketcall ACCEPT, which has no number of its own", call("socketcall"), 5, true},
		{"socketcall LISTEN, whose descriptor cannot be seen", call("socketcall"), 4, true},
		{"listen on the descriptor", call("listen"), 77, true},
		{"listen on another", call("listen"), 78, false},
		{"ipc SHMAT", call("ipc"), 21, true},
		{"ipc SEMOP", call("ipc"), 1, false},
	} {
		if got := verdict(t, p, specs.ArchX86, tt.nr, tt.op); (got == allow) != tt.allowed {
			t.Errorf("%s: %#x; want allowed: %v", tt.name, got, tt.allowed)
		}
	}
}

func TestFlagsBecomeBits(t *testing.T) {
	const listener = uint(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	notify := specs.LinuxSyscall{Names: []string{"mount"}, Action: specs.ActNotify}
	for _, tt := range []struct {
		name   string
		flags  []specs.LinuxSeccompFlag
		notify bool
		want   uint
	}{
		{"silence", nil, false, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
		{"none", []specs.LinuxSeccompFlag{}, false, 0},
		{"log", []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagLog}, false, unix.SECCOMP_FILTER_FLAG_LOG},
		{"a process with one thread needs no tsync", []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_TSYNC"}, false, 0},
		{"listener", []specs.LinuxSeccompFlag{}, true, listener},
		{"wait", []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}, true, listener | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: tt.flags, Syscalls: []specs.LinuxSyscall{rule("reboot", 1)}}
			if tt.notify {
				p.Syscalls = append(p.Syscalls, notify)
				p.ListenerPath, p.ListenerMetadata = "/run/agent.sock", "data"
			}
			f, err := seccomp.CompileFor(specs.ArchX86_64, p)
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skipf("this kernel is older than 5.19: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Flags != tt.want || f.NeedsListener != tt.notify || f.Listener != p.ListenerPath || f.ListenerMetadata != p.ListenerMetadata {
				t.Errorf("got %+v; want flags %#x, listener %v", f, tt.want, tt.notify)
			}
		})
	}
}

func TestFeaturesAreWhatCompileTakes(t *testing.T) {
	for _, a := range seccomp.Archs() {
		p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.Arch(a)}, Syscalls: []specs.LinuxSyscall{rule("read", 0)}}
		if _, err := seccomp.CompileFor(specs.ArchX86_64, p); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		if got := verdict(t, p, specs.Arch(a), number(t, specs.Arch(a), "read")); got != allow {
			t.Errorf("%s: read is %#x; want it allowed", a, got)
		}
	}
	for _, op := range seccomp.Operators() {
		p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{rule("read", 0, arg(0, specs.LinuxSeccompOperator(op), 1))}}
		if _, err := seccomp.CompileFor(specs.ArchX86_64, p); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	known := seccomp.KnownFlags()
	for _, flag := range seccomp.SupportedFlags() {
		if !slices.Contains(known, flag) {
			t.Errorf("%s is supported but not known", flag)
		}
	}
	if !slices.Contains(seccomp.SupportedFlags(), string(specs.LinuxSeccompFlagSpecAllow)) {
		t.Error("SPEC_ALLOW (Linux 4.17) is not found")
	}
	if len(seccomp.Actions()) != 9 || len(seccomp.Operators()) != 7 {
		t.Errorf("actions %q, operators %q", seccomp.Actions(), seccomp.Operators())
	}
}

func TestNumbersOfRecentAndPrivateCalls(t *testing.T) {
	for _, tt := range []struct {
		arch specs.Arch
		name string
		want uint32
	}{
		{specs.ArchX86_64, "openat2", 437},
		{specs.ArchX86_64, "mseal", 462},
		{specs.ArchX86_64, "statmount", 457},
		{specs.ArchX86_64, "listxattrat", 465},
		{specs.ArchAARCH64, "open_tree_attr", 467},
		{specs.ArchRISCV64, "file_getattr", 468},
		{specs.ArchLOONGARCH64, "mseal", 462},
		{specs.ArchX32, "mseal", 0x40000000 + 462},
		{specs.ArchX32, "execve", 0x40000000 + 520},
		{specs.ArchMIPSEL, "openat2", 4437},
		{specs.ArchMIPSEL64, "openat2", 5437},
		{specs.ArchARM, "set_tls", 0x0f0005},
	} {
		if got, ok := seccomp.Number(tt.arch, tt.name); !ok || got != tt.want {
			t.Errorf("%s on %s: %#x, %v; want %#x", tt.name, tt.arch, got, ok, tt.want)
		}
	}
	for _, tt := range []struct {
		arch specs.Arch
		name string
	}{{specs.ArchX86_64, "waitpid"}, {specs.ArchX32, "uprobe"}, {specs.ArchAARCH64, "open"}, {"SCMP_ARCH_PDP11", "read"}, {specs.ArchX86, ""}} {
		if got, ok := seccomp.Number(tt.arch, tt.name); ok {
			t.Errorf("%s on %s: %d; want none", tt.name, tt.arch, got)
		}
	}
	if !slices.IsSorted(seccomp.Names(specs.ArchX86_64)) || len(seccomp.Names(specs.ArchX86_64)) < 370 {
		t.Error("the names of x86_64 are not in order or not complete")
	}
}

// Every shim would pay for work at init: the tables must be constant data.
func TestNothingRunsAtInit(t *testing.T) {
	cmd := osexec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "init ") {
		t.Fatalf("no trace of inits: %s", out)
	}
	if strings.Contains(string(out), "init github.com/ibex-run/ibex/internal/seccomp @") {
		t.Errorf("the package has an init:\n%s", out)
	}
}
