package seccomp

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxInstructions is BPF_MAXINSNS, include/uapi/linux/bpf_common.h.
const maxInstructions = 4096

// Filter is a compiled profile. It is immutable: every process of a container
// installs the same one.
type Filter struct {
	Program []unix.SockFilter // 1 to 4096 instructions; not to be changed
	Flags   uint              // SECCOMP_FILTER_FLAG_*, for seccomp(2)

	// NeedsListener is set if a rule notifies: seccomp(2) then returns a
	// descriptor (Flags has NEW_LISTENER) that goes to the socket at Listener
	// with ListenerMetadata.
	NeedsListener    bool
	Listener         string
	ListenerMetadata string

	// Unknown lists the profile's names that no architecture has, in the
	// profile's order. They were skipped.
	Unknown []string
}

// Compile turns an OCI profile into a filter for processes of this machine's
// architecture. A nil profile, and one without a default action and without
// rules, means no filter: the result is nil.
//
// Errors name the field of the profile. A flag that the running kernel does
// not have is reported as errors.ErrUnsupported.
func Compile(p *specs.LinuxSeccomp) (*Filter, error) {
	return CompileFor(Native(), p)
}

// CompileFor is Compile for a machine whose own architecture is native. The
// tests prove with it what another machine would install.
func CompileFor(native specs.Arch, p *specs.LinuxSeccomp) (*Filter, error) {
	if p == nil || p.DefaultAction == "" && len(p.Syscalls) == 0 {
		return nil, nil
	}
	prof, err := parse(p)
	if err != nil {
		return nil, err
	}
	selected, err := selectArchs(native, p.Architectures)
	if err != nil {
		return nil, err
	}
	f := &Filter{
		NeedsListener:    prof.notifies,
		Listener:         p.ListenerPath,
		ListenerMetadata: p.ListenerMetadata,
		Unknown:          prof.unknown,
	}
	if f.Flags, err = filterFlags(p.Flags, f.NeedsListener); err != nil {
		return nil, err
	}
	if f.Program, err = prof.program(selected); err != nil {
		return nil, err
	}
	return f, nil
}

// profile is a checked specs.LinuxSeccomp.
type profile struct {
	action   uint32 // default, as SECCOMP_RET_*
	lenient  bool   // the default action lets calls happen
	notifies bool
	rules    []rule
	unknown  []string
}

// rule is one entry of seccomp.syscalls.
type rule struct {
	field  int      // its index there
	action uint32   // SECCOMP_RET_* and data
	calls  []uint16 // indices into the table of names

	// alternatives are ORed, the tests of one are ANDed and in ascending order
	// of arguments. None: the rule applies whatever the arguments are.
	alternatives [][]test
}

// test compares one argument of a call.
type test struct {
	arg   uint8
	op    specs.LinuxSeccompOperator
	value uint64
	mask  uint64 // all ones unless op is SCMP_CMP_MASKED_EQ
}

func parse(p *specs.LinuxSeccomp) (*profile, error) {
	prof := &profile{rules: make([]rule, 0, len(p.Syscalls))}
	act, err := parseAction(p.DefaultAction, p.DefaultErrnoRet, "defaultAction", "defaultErrnoRet")
	if err != nil {
		return nil, fmt.Errorf("seccomp.%w", err)
	}
	prof.action, prof.lenient = act.ret, act.lenient
	if p.DefaultAction == specs.ActNotify {
		// The process has to report the listener's descriptor, which it could
		// not do without being notified about.
		return nil, fmt.Errorf("seccomp.defaultAction: %s is possible in rules only", specs.ActNotify)
	}
	total := 0
	for i := range p.Syscalls {
		total += len(p.Syscalls[i].Names)
	}
	pool := make([]uint16, 0, total) // one allocation for the names of all rules
	for i := range p.Syscalls {
		s := &p.Syscalls[i]
		r, err := parseRule(s)
		if err != nil {
			return nil, fmt.Errorf("seccomp.syscalls[%d].%w", i, err)
		}
		r.field = i
		start := len(pool)
		for k, name := range s.Names {
			n := lookup(name)
			switch {
			case name == "":
				return nil, fmt.Errorf("seccomp.syscalls[%d].names[%d]: empty", i, k)
			case s.Action == specs.ActNotify && (name == "write" || name == "sendmsg"):
				return nil, fmt.Errorf("seccomp.syscalls[%d].names[%d]: %s cannot be used for the %s syscall: by these the listener is handed over", i, k, s.Action, name)
			case n < 0:
				prof.unknown = append(prof.unknown, name)
			default:
				pool = append(pool, uint16(n))
			}
			prof.notifies = prof.notifies || s.Action == specs.ActNotify
		}
		r.calls = pool[start:len(pool):len(pool)]
		prof.rules = append(prof.rules, r)
	}
	switch {
	case p.ListenerMetadata != "" && p.ListenerPath == "":
		return nil, errors.New("seccomp.listenerMetadata: set without listenerPath")
	case prof.notifies && p.ListenerPath == "":
		return nil, fmt.Errorf("seccomp.listenerPath: empty, but a rule uses %s", specs.ActNotify)
	}
	return prof, nil
}

// parseAction checks an action and puts errnoRet into it; nameField and
// errnoField are what its errors call the two.
func parseAction(name specs.LinuxSeccompAction, errnoRet *uint, nameField, errnoField string) (action, error) {
	for _, a := range actions {
		if a.name != name {
			continue
		}
		switch {
		case !a.data && errnoRet != nil:
			// "When the action doesn't support an errno, the runtime MUST
			// print and error and fail." - runtime-spec, config-linux.md
			return a, fmt.Errorf("%s: %s has no errno", errnoField, name)
		case errnoRet != nil && *errnoRet > unix.SECCOMP_RET_DATA:
			return a, fmt.Errorf("%s: %d is above %d", errnoField, *errnoRet, unix.SECCOMP_RET_DATA)
		case errnoRet != nil:
			a.ret |= uint32(*errnoRet)
		case a.data:
			a.ret |= uint32(unix.EPERM)
		}
		return a, nil
	}
	return action{}, fmt.Errorf("%s: unknown action %q", nameField, name)
}

func parseRule(s *specs.LinuxSyscall) (rule, error) {
	act, err := parseAction(s.Action, s.ErrnoRet, "action", "errnoRet")
	if err != nil {
		return rule{}, err
	}
	r := rule{action: act.ret}
	if len(s.Args) == 0 {
		return r, nil
	}
	tests := make([]test, len(s.Args))
	var seen [6]bool
	split := false
	for i, a := range s.Args {
		if tests[i], err = parseArg(a); err != nil {
			return r, fmt.Errorf("args[%d].%w", i, err)
		}
		split = split || seen[a.Index]
		seen[a.Index] = true
	}
	if split {
		// An argument that is tested twice made two rules before runc could
		// AND tests, and profiles rely on it ("personality is 0 or 8").
		for i := range tests {
			r.alternatives = append(r.alternatives, tests[i:i+1:i+1])
		}
		return r, nil
	}
	sortTests(tests)
	r.alternatives = [][]test{tests}
	return r, nil
}

func parseArg(a specs.LinuxSeccompArg) (test, error) {
	if a.Index > 5 {
		return test{}, fmt.Errorf("index: %d, but system calls have arguments 0 to 5", a.Index)
	}
	t := test{arg: uint8(a.Index), op: a.Op, value: a.Value, mask: ^uint64(0)}
	for _, op := range operators {
		if op != a.Op {
			continue
		}
		if op == specs.OpMaskedEqual {
			t.mask, t.value = a.Value, a.ValueTwo
		}
		return t, nil
	}
	return test{}, fmt.Errorf("op: unknown operator %q", a.Op)
}

// sortTests orders tests by argument; there are at most six.
func sortTests(tests []test) {
	for i := 1; i < len(tests); i++ {
		for k := i; k > 0 && tests[k].arg < tests[k-1].arg; k-- {
			tests[k], tests[k-1] = tests[k-1], tests[k]
		}
	}
}
