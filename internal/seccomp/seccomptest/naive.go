package seccomptest

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
)

// Model evaluates a profile the slow way: for every call it walks over all
// rules in their order. It shares nothing with the compiler but the table of
// numbers.
type Model struct {
	profile *specs.LinuxSeccomp
	archs   []specs.Arch
	last    map[specs.Arch]uint32
	deflt   uint32
	stub    bool
}

// Audit are the AUDIT_ARCH_* numbers of include/uapi/linux/audit.h.
var Audit = map[specs.Arch]uint32{
	specs.ArchX86_64: 0xc000003e, specs.ArchX32: 0xc000003e, specs.ArchX86: 0x40000003,
	specs.ArchAARCH64: 0xc00000b7, specs.ArchARM: 0x40000028,
	specs.ArchMIPSEL: 0x40000008, specs.ArchMIPSEL64: 0xc0000008,
	specs.ArchPPC64LE: 0xc0000015, specs.ArchRISCV64: 0xc00000f3, specs.ArchLOONGARCH64: 0xc0000102,
}

var narrow = []specs.Arch{specs.ArchX86, specs.ArchX32, specs.ArchARM, specs.ArchMIPSEL}

// Multiplexed are the operations of socketcall(2) and ipc(2).
var Multiplexed = map[string][]string{
	"socketcall": {
		"", "socket", "bind", "connect", "listen", "accept", "getsockname", "getpeername",
		"socketpair", "send", "recv", "sendto", "recvfrom", "shutdown", "setsockopt",
		"getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg",
	},
	"ipc": {
		"", "semop", "semget", "semctl", "semtimedop", "", "", "", "", "", "", "msgsnd", "msgrcv", "msgget",
		"msgctl", "", "", "", "", "", "", "shmat", "shmdt", "shmget", "shmctl",
	},
}

var muxed = []specs.Arch{specs.ArchX86, specs.ArchMIPSEL, specs.ArchPPC64LE}

// NewModel prepares a profile that Compile has accepted.
func NewModel(native specs.Arch, p *specs.LinuxSeccomp) *Model {
	m := &Model{profile: p, last: map[specs.Arch]uint32{}, deflt: Ret(p.DefaultAction, p.DefaultErrnoRet)}
	m.archs = append(m.archs, native)
	for _, a := range p.Architectures {
		if !slices.Contains(m.archs, a) {
			m.archs = append(m.archs, a)
		}
	}
	switch p.DefaultAction {
	case specs.ActAllow, specs.ActLog, specs.ActTrace:
	default:
		m.stub = true
	}
	for _, a := range m.archs {
		for _, s := range p.Syscalls {
			for _, name := range s.Names {
				if slices.Contains(muxed, a) && through(name) != "" {
					continue
				}
				if nr, ok := seccomp.Number(a, name); ok {
					m.last[a] = max(m.last[a], nr)
				}
			}
		}
	}
	return m
}

// through is the call that name is an operation of, "" if of none.
func through(name string) string { return throughCall[name] }

var throughCall = func() map[string]string {
	m := map[string]string{}
	for call, ops := range Multiplexed {
		for _, op := range ops {
			m[op] = call
		}
	}
	delete(m, "")
	return m
}()

// Ret is the verdict for an action, SECCOMP_RET_* with its data.
func Ret(a specs.LinuxSeccompAction, errnoRet *uint) uint32 {
	data := uint32(unix.EPERM)
	if errnoRet != nil {
		data = uint32(*errnoRet)
	}
	switch a {
	case specs.ActAllow:
		return unix.SECCOMP_RET_ALLOW
	case specs.ActErrno:
		return unix.SECCOMP_RET_ERRNO | data
	case specs.ActTrace:
		return unix.SECCOMP_RET_TRACE | data
	case specs.ActTrap:
		return unix.SECCOMP_RET_TRAP
	case specs.ActLog:
		return unix.SECCOMP_RET_LOG
	case specs.ActNotify:
		return unix.SECCOMP_RET_USER_NOTIF
	case specs.ActKillProcess:
		return unix.SECCOMP_RET_KILL_PROCESS
	}
	return unix.SECCOMP_RET_KILL_THREAD
}

// Verdicts lists every verdict that the profile justifies for a call. It is
// one unless several rules with arguments match and want different actions.
func (m *Model) Verdicts(d *Data) []uint32 {
	if m.unknownCall(d) {
		return []uint32{unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	}
	arch, known := m.archOf(d)
	if !known {
		return []uint32{unix.SECCOMP_RET_KILL_THREAD}
	}
	var matched []uint32
	for _, s := range m.profile.Syscalls {
		action := Ret(s.Action, s.ErrnoRet)
		if action == m.deflt {
			continue
		}
		for _, name := range s.Names {
			for _, tests := range alternatives(arch, name, s.Args, d) {
				switch {
				case unconditional(arch, tests):
					// It replaces the rules so far and stands for good.
					return []uint32{action}
				case matches(arch, tests, d) && !slices.Contains(matched, action):
					matched = append(matched, action)
				}
			}
		}
	}
	// A later rule without arguments replaces earlier ones: the loop above
	// returned then. So these are what is left.
	if matched == nil {
		return []uint32{m.deflt}
	}
	return matched
}

// unknownCall reports whether a call is newer than all that the profile names.
// It comes before everything else.
func (m *Model) unknownCall(d *Data) bool {
	if !m.stub {
		return false
	}
	for _, a := range m.archs {
		if Audit[a] != d.Arch || Audit[a] == Audit[specs.ArchX86_64] && (a == specs.ArchX32) != (d.Nr>>30&1 == 1) {
			continue
		}
		if m.last[a] != 0 && d.Nr > m.last[a] {
			return true
		}
	}
	return false
}

func (m *Model) archOf(d *Data) (specs.Arch, bool) {
	for _, a := range m.archs {
		x32 := d.Nr>>30 != 0
		switch {
		case Audit[a] != d.Arch:
		case a == specs.ArchX32 && d.Nr>>30&1 == 0:
		case a == specs.ArchX86_64 && x32 && !slices.Contains(m.archs, specs.ArchX32) && d.Nr != ^uint32(0):
		case a == specs.ArchX86_64 && d.Nr>>30&1 == 1 && slices.Contains(m.archs, specs.ArchX32):
		default:
			return a, true
		}
	}
	return "", false
}

// alternatives are the lists of tests that a rule for name applies to this
// call by; none if it is about another call.
func alternatives(arch specs.Arch, name string, args []specs.LinuxSeccompArg, d *Data) [][]specs.LinuxSeccompArg {
	var lists [][]specs.LinuxSeccompArg
	if nr, ok := seccomp.Number(arch, name); ok && nr == d.Nr {
		lists = append(lists, split(args)...)
	}
	call := through(name)
	if call == "" || !slices.Contains(muxed, arch) {
		return lists
	}
	if nr, ok := seccomp.Number(arch, call); ok && nr == d.Nr {
		op := specs.LinuxSeccompArg{Op: specs.OpEqualTo, Value: uint64(slices.Index(Multiplexed[call], name))}
		for _, tests := range split(args) {
			tests = slices.DeleteFunc(slices.Clone(tests), func(a specs.LinuxSeccompArg) bool { return a.Index == 0 })
			lists = append(lists, append(tests, op))
		}
	}
	return lists
}

func split(args []specs.LinuxSeccompArg) [][]specs.LinuxSeccompArg {
	for i, a := range args {
		for _, b := range args[:i] {
			if a.Index == b.Index {
				var lists [][]specs.LinuxSeccompArg
				for _, c := range args {
					lists = append(lists, []specs.LinuxSeccompArg{c})
				}
				return lists
			}
		}
	}
	return [][]specs.LinuxSeccompArg{args}
}

func half(arch specs.Arch, v uint64) uint64 {
	if slices.Contains(narrow, arch) {
		return v & 0xffffffff
	}
	return v
}

func unconditional(arch specs.Arch, tests []specs.LinuxSeccompArg) bool {
	for _, t := range tests {
		if t.Op != specs.OpMaskedEqual || half(arch, t.Value) != 0 {
			return false
		}
	}
	return true
}

func matches(arch specs.Arch, tests []specs.LinuxSeccompArg, d *Data) bool {
	for _, t := range tests {
		arg, value := half(arch, d.Args[t.Index]), half(arch, t.Value)
		ok := false
		switch t.Op {
		case specs.OpEqualTo:
			ok = arg == value
		case specs.OpNotEqual:
			ok = arg != value
		case specs.OpLessThan:
			ok = arg < value
		case specs.OpLessEqual:
			ok = arg <= value
		case specs.OpGreaterEqual:
			ok = arg >= value
		case specs.OpGreaterThan:
			ok = arg > value
		case specs.OpMaskedEqual:
			ok = arg&value == t.ValueTwo&value
		}
		if !ok {
			return false
		}
	}
	return true
}
