package seccomp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

const (
	allow  = uint32(unix.SECCOMP_RET_ALLOW)
	kill   = uint32(unix.SECCOMP_RET_KILL_THREAD)
	eperm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

func errno(n uint) *uint { return &n }

// rule is short for an entry of syscalls; ERRNO carries errno n.
func rule(name string, n uint, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	s := specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: &n, Args: args}
	if n == 0 {
		s.Action, s.ErrnoRet = specs.ActAllow, nil
	}
	return s
}

func arg(index uint, op specs.LinuxSeccompOperator, value ...uint64) specs.LinuxSeccompArg {
	a := specs.LinuxSeccompArg{Index: index, Op: op, Value: value[0]}
	if len(value) > 1 {
		a.ValueTwo = value[1]
	}
	return a
}

// verdict compiles p for an amd64 machine and asks about one call.
func verdict(t *testing.T, p *specs.LinuxSeccomp, a specs.Arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	f, err := seccomp.CompileFor(specs.ArchX86_64, p)
	if err != nil {
		t.Fatal(err)
	}
	d := seccomptest.Data{Nr: nr, Arch: seccomptest.Audit[a]}
	copy(d.Args[:], args)
	got, _, err := seccomptest.Run(f.Program, &d)
	if err != nil {
		t.Fatalf("%v\n%s", err, seccomp.Disassemble(f.Program))
	}
	return got
}

func number(t *testing.T, a specs.Arch, name string) uint32 {
	t.Helper()
	nr, ok := seccomp.Number(a, name)
	if !ok {
		t.Fatalf("%s has no %s", a, name)
	}
	return nr
}

func TestNoProfileMeansNoFilter(t *testing.T) {
	for _, p := range []*specs.LinuxSeccomp{nil, {}, {Architectures: []specs.Arch{specs.ArchX86}}} {
		if f, err := seccomp.Compile(p); f != nil || err != nil {
			t.Errorf("Compile(%+v) = %v, %v; want nil, nil", p, f, err)
		}
	}
}

func TestBadProfilesAreRefusedByTheNameOfTheField(t *testing.T) {
	deny := func(change func(p *specs.LinuxSeccomp)) *specs.LinuxSeccomp {
		p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{rule("getpid", 0), rule("read", 0)}}
		change(p)
		return p
	}
	for _, tt := range []struct {
		field  string
		change func(p *specs.LinuxSeccomp)
	}{
		{"seccomp.defaultAction:", func(p *specs.LinuxSeccomp) { p.DefaultAction = "SCMP_ACT_MAYBE" }},
		{"seccomp.defaultAction:", func(p *specs.LinuxSeccomp) { p.DefaultAction = "" }},
		{"seccomp.defaultAction:", func(p *specs.LinuxSeccomp) { p.DefaultAction = specs.ActNotify }},
		{"seccomp.defaultErrnoRet:", func(p *specs.LinuxSeccomp) { p.DefaultAction, p.DefaultErrnoRet = specs.ActKill, errno(1) }},
		{"seccomp.defaultErrnoRet:", func(p *specs.LinuxSeccomp) { p.DefaultErrnoRet = errno(0x10000) }},
		{"seccomp.architectures[1]:", func(p *specs.LinuxSeccomp) { p.Architectures = []specs.Arch{specs.ArchX86, "SCMP_ARCH_PDP11"} }},
		{"seccomp.architectures[0]:", func(p *specs.LinuxSeccomp) { p.Architectures = []specs.Arch{specs.ArchS390X} }},
		{"seccomp.architectures[0]:", func(p *specs.LinuxSeccomp) { p.Architectures = []specs.Arch{specs.ArchMIPSEL64N32} }},
		{"seccomp.flags[0]:", func(p *specs.LinuxSeccomp) { p.Flags = []specs.LinuxSeccompFlag{"SECCOMP_FILTER_FLAG_NEW_LISTENER"} }},
		{"seccomp.flags[0]:", func(p *specs.LinuxSeccomp) {
			p.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}
		}},
		{"seccomp.syscalls[1].action:", func(p *specs.LinuxSeccomp) { p.Syscalls[1].Action = "" }},
		{"seccomp.syscalls[1].errnoRet:", func(p *specs.LinuxSeccomp) { p.Syscalls[1].ErrnoRet = errno(1) }},
		{"seccomp.syscalls[1].names[1]:", func(p *specs.LinuxSeccomp) { p.Syscalls[1].Names = []string{"read", ""} }},
		{"seccomp.syscalls[0].args[1].index:", func(p *specs.LinuxSeccomp) {
			p.Syscalls[0].Args = []specs.LinuxSeccompArg{arg(0, specs.OpEqualTo, 1), arg(6, specs.OpEqualTo, 1)}
		}},
		{"seccomp.syscalls[0].args[0].op:", func(p *specs.LinuxSeccomp) {
			p.Syscalls[0].Args = []specs.LinuxSeccompArg{arg(0, "SCMP_CMP_LIKE", 1)}
		}},
		{"seccomp.syscalls[0].names[1]:", func(p *specs.LinuxSeccomp) {
			p.Syscalls[0] = specs.LinuxSyscall{Names: []string{"read", "write"}, Action: specs.ActNotify}
			p.ListenerPath = "/run/agent.sock"
		}},
		{"seccomp.listenerPath:", func(p *specs.LinuxSeccomp) { p.Syscalls[0].Action = specs.ActNotify }},
		{"seccomp.listenerMetadata:", func(p *specs.LinuxSeccomp) { p.ListenerMetadata = "x" }},
		{"seccomp.syscalls[3]: read: contradicts", func(p *specs.LinuxSeccomp) {
			p.Syscalls = []specs.LinuxSyscall{
				rule("getpid", 0), rule("read", 2, arg(0, specs.OpEqualTo, 1)),
				rule("read", 2, arg(0, specs.OpEqualTo, 1)), rule("read", 3, arg(0, specs.OpEqualTo, 1)),
			}
		}},
		{"seccomp.syscalls[1]: read: contradicts", func(p *specs.LinuxSeccomp) {
			p.Syscalls = []specs.LinuxSyscall{ // the same arguments in another order
				rule("read", 2, arg(1, specs.OpEqualTo, 1), arg(0, specs.OpEqualTo, 2)),
				rule("read", 3, arg(0, specs.OpEqualTo, 2), arg(1, specs.OpEqualTo, 1)),
			}
		}},
		{"seccomp.syscalls[1]: read: contradicts", func(p *specs.LinuxSeccomp) {
			p.Syscalls = []specs.LinuxSyscall{ // the second takes all from the first
				rule("read", 2, arg(0, specs.OpEqualTo, 1), arg(1, specs.OpEqualTo, 1)),
				rule("read", 3, arg(0, specs.OpEqualTo, 1)),
			}
		}},
	} {
		f, err := seccomp.CompileFor(specs.ArchX86_64, deny(tt.change))
		if err == nil || !strings.HasPrefix(err.Error(), tt.field) {
			t.Errorf("%s: got %v, %v", tt.field, f, err)
		}
	}
}

func TestAProgramBeyondTheKernelsLimitIsRefused(t *testing.T) {
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	for i, name := range seccomp.Names(specs.ArchX86_64) {
		s := rule(name, 0)
		for k := range uint(6) {
			s.Args = append(s.Args, arg(k, specs.OpNotEqual, uint64(i)<<32|uint64(k)))
		}
		p.Syscalls = append(p.Syscalls, s)
	}
	if _, err := seccomp.CompileFor(specs.ArchX86_64, p); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("got %v; want an error that names the limit", err)
	}
}

func TestUnknownNamesAreSkippedAndListed(t *testing.T) {
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
		{Names: []string{"getpid", "frobnicate", "waitpid"}, Action: specs.ActAllow},
		rule("twiddle", 0, arg(0, specs.OpEqualTo, 1)),
	}}
	f, err := seccomp.CompileFor(specs.ArchX86_64, p)
	if err != nil {
		t.Fatal(err)
	}
	// waitpid is known, though not to this architecture.
	if want := []string{"frobnicate", "twiddle"}; !slices.Equal(f.Unknown, want) {
		t.Errorf("Unknown = %q; want %q", f.Unknown, want)
	}
	if got := verdict(t, p, specs.ArchX86_64, number(t, specs.ArchX86_64, "getpid")); got != allow {
		t.Errorf("getpid: %#x; want it allowed", got)
	}
}

func TestRulesForOneCall(t *testing.T) {
	const eq, ne, lt, le, gt, ge, masked = specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual,
		specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpMaskedEqual
	e := func(n uint32) uint32 { return unix.SECCOMP_RET_ERRNO | n }
	type try struct {
		a, b uint64
		want uint32
	}
	const big = 1 << 32
	for _, tt := range []struct {
		name  string
		rules []specs.LinuxSyscall
		tries []try
	}{
		{
			"all tests of a rule must hold",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(1, eq, 2), arg(0, eq, 1))},
			[]try{{1, 2, e(9)}, {1, 3, allow}, {2, 2, allow}},
		},
		{
			"any of several rules may hold",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, 1)), rule("ioctl", 9, arg(0, eq, 3))},
			[]try{{1, 0, e(9)}, {3, 0, e(9)}, {2, 0, allow}},
		},
		{
			"an argument that is tested twice makes two rules",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, 1), arg(0, eq, 3), arg(1, eq, 8))},
			[]try{{1, 0, e(9)}, {3, 0, e(9)}, {2, 8, e(9)}, {2, 0, allow}},
		},
		{
			"values have 64 bits",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, big+1))},
			[]try{{big + 1, 0, e(9)}, {1, 0, allow}, {big, 0, allow}, {2*big + 1, 0, allow}},
		},
		{
			"not equal",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, ne, 5))},
			[]try{{5, 0, allow}, {4, 0, e(9)}, {big + 5, 0, e(9)}},
		},
		{
			"less",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, lt, big+5))},
			[]try{{big + 4, 0, e(9)}, {big + 5, 0, allow}, {6, 0, e(9)}, {2 * big, 0, allow}, {0, 0, e(9)}},
		},
		{
			"less or equal",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, le, big+5))},
			[]try{{big + 5, 0, e(9)}, {big + 6, 0, allow}, {^uint64(0), 0, allow}},
		},
		{
			"greater",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, gt, big+5))},
			[]try{{big + 5, 0, allow}, {big + 6, 0, e(9)}, {7, 0, allow}, {2 * big, 0, e(9)}},
		},
		{
			"greater or equal",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, ge, big+5))},
			[]try{{big + 5, 0, e(9)}, {big + 4, 0, allow}, {^uint64(0), 0, e(9)}},
		},
		{
			"masked",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, masked, big|0xf0, 0x30))},
			[]try{{0x3f, 0, e(9)}, {0x2f, 0, allow}, {big | 0x30, 0, allow}, {2*big | 0x30, 0, e(9)}},
		},
		{
			"bits of the value outside the mask do not count",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, masked, 1, 3))},
			[]try{{1, 0, e(9)}, {3, 0, e(9)}, {2, 0, allow}},
		},
		{
			"an empty mask is no test",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, masked, 0, 7))},
			[]try{{1, 0, e(9)}, {7, 0, e(9)}},
		},
		{
			"a rule without arguments replaces those with",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, 1)), rule("ioctl", 7)},
			[]try{{1, 0, e(7)}, {2, 0, e(7)}},
		},
		{
			"and nothing comes after it",
			[]specs.LinuxSyscall{rule("ioctl", 7), rule("ioctl", 9, arg(0, eq, 1)), rule("ioctl", 8)},
			[]try{{1, 0, e(7)}, {2, 0, e(7)}},
		},
		{
			"the default action makes no rule",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, ge, 1)), rule("ioctl", 0), rule("ioctl", 0, arg(0, eq, 2))},
			[]try{{1, 0, e(9)}, {2, 0, e(9)}, {0, 0, allow}},
		},
		{
			"the higher argument decides",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, 1)), rule("ioctl", 8, arg(1, eq, 1))},
			[]try{{1, 1, e(8)}, {1, 2, e(9)}, {2, 1, e(8)}},
		},
		{
			"equality decides before bounds",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, ge, 1)), rule("ioctl", 7, arg(0, le, 3)), rule("ioctl", 8, arg(0, eq, 2))},
			[]try{{2, 0, e(8)}, {3, 0, e(7)}, {4, 0, e(9)}},
		},
		{
			"the tighter lower bound decides",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, gt, 5)), rule("ioctl", 8, arg(0, gt, 9))},
			[]try{{6, 0, e(9)}, {9, 0, e(9)}, {10, 0, e(8)}, {big, 0, e(8)}, {5, 0, allow}},
		},
		{
			"the tighter upper bound decides",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, le, 9)), rule("ioctl", 8, arg(0, le, 5))},
			[]try{{5, 0, e(8)}, {6, 0, e(9)}, {10, 0, allow}},
		},
		{
			"fewer tests decide",
			[]specs.LinuxSyscall{rule("ioctl", 9, arg(0, eq, 1)), rule("ioctl", 8, arg(0, eq, 1), arg(1, eq, 1))},
			[]try{{1, 1, e(9)}},
		},
		// libseccomp 2.5.4 allows (7, 2) here: the rules' tests of the second
		// argument end up on one list.
		{"rules do not borrow each other's tests", []specs.LinuxSyscall{
			rule("ioctl", 9, arg(0, gt, 5), arg(1, eq, 1)), rule("ioctl", 9, arg(0, gt, 9), arg(1, eq, 2)),
		}, []try{{7, 1, e(9)}, {7, 2, allow}, {10, 2, e(9)}, {10, 1, e(9)}, {10, 3, allow}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: tt.rules}
			for _, c := range tt.tries {
				if got := verdict(t, p, specs.ArchX86_64, unix.SYS_IOCTL, c.a, c.b); got != c.want {
					t.Errorf("(%#x, %#x): %#x; want %#x", c.a, c.b, got, c.want)
				}
			}
			if got := verdict(t, p, specs.ArchX86_64, unix.SYS_READ); got != allow {
				t.Errorf("another call: %#x; want it allowed", got)
			}
		})
	}
}

func TestEveryActionHasItsVerdict(t *testing.T) {
	for _, a := range seccomp.Actions() {
		action := specs.LinuxSeccompAction(a)
		var n *uint
		if action == specs.ActErrno || action == specs.ActTrace {
			n = errno(77)
		}
		p := &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, ListenerPath: "/run/agent.sock",
			Syscalls: []specs.LinuxSyscall{{Names: []string{"getpid"}, Action: action, ErrnoRet: n}},
		}
		nr := number(t, specs.ArchX86_64, "getpid")
		if got, want := verdict(t, p, specs.ArchX86_64, nr), seccomptest.Ret(action, n); got != want {
			t.Errorf("%s: %#x; want %#x", a, got, want)
		}
		if got := verdict(t, p, specs.ArchX86_64, nr-1); got != eperm {
			t.Errorf("%s: default is %#x; want EPERM", a, got)
		}
	}
}
