package seccomp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// action is one row of the table of actions.
type action struct {
	name    specs.LinuxSeccompAction
	ret     uint32 // SECCOMP_RET_*, include/uapi/linux/seccomp.h
	data    bool   // the low 16 bits carry errnoRet
	lenient bool   // lets the call happen, or leaves it to a tracer
}

var actions = [...]action{
	{name: specs.ActAllow, ret: unix.SECCOMP_RET_ALLOW, lenient: true},
	{name: specs.ActErrno, ret: unix.SECCOMP_RET_ERRNO, data: true},
	{name: specs.ActKill, ret: unix.SECCOMP_RET_KILL_THREAD},
	{name: specs.ActKillProcess, ret: unix.SECCOMP_RET_KILL_PROCESS},
	{name: specs.ActKillThread, ret: unix.SECCOMP_RET_KILL_THREAD},
	{name: specs.ActLog, ret: unix.SECCOMP_RET_LOG, lenient: true},
	{name: specs.ActNotify, ret: unix.SECCOMP_RET_USER_NOTIF},
	{name: specs.ActTrace, ret: unix.SECCOMP_RET_TRACE, data: true, lenient: true},
	{name: specs.ActTrap, ret: unix.SECCOMP_RET_TRAP},
}

var operators = [...]specs.LinuxSeccompOperator{
	specs.OpEqualTo, specs.OpGreaterEqual, specs.OpGreaterThan, specs.OpLessEqual,
	specs.OpLessThan, specs.OpMaskedEqual, specs.OpNotEqual,
}

// flagTsync is known to runc though not to the specification. It asks for what
// is always so: the filter is installed by a process with one thread.
const flagTsync specs.LinuxSeccompFlag = "SECCOMP_FILTER_FLAG_TSYNC"

var flags = [...]struct {
	name specs.LinuxSeccompFlag
	bit  uint
}{
	{flagTsync, 0},
	{specs.LinuxSeccompFlagSpecAllow, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW},
	{specs.LinuxSeccompFlagLog, unix.SECCOMP_FILTER_FLAG_LOG},
	{specs.LinuxSeccompFlagWaitKillableRecv, unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
}

// Actions lists the actions that Compile knows, for the features document.
func Actions() []string {
	list := make([]string, len(actions))
	for i := range actions {
		list[i] = string(actions[i].name)
	}
	slices.Sort(list)
	return list
}

// Operators lists the comparisons that Compile knows.
func Operators() []string {
	list := make([]string, len(operators))
	for i := range operators {
		list[i] = string(operators[i])
	}
	slices.Sort(list)
	return list
}

// Archs lists the architectures that Compile knows.
func Archs() []string {
	list := make([]string, len(archs))
	for i := range archs {
		list[i] = string(archs[i].name)
	}
	slices.Sort(list)
	return list
}

// KnownFlags lists the filter flags that Compile knows.
func KnownFlags() []string {
	list := make([]string, len(flags))
	for i := range flags {
		list[i] = string(flags[i].name)
	}
	return list
}

// SupportedFlags lists the known flags that the running kernel has too.
func SupportedFlags() []string {
	var list []string
	for i := range flags {
		if supported(flags[i].bit) {
			list = append(list, string(flags[i].name))
		}
	}
	return list
}

// supported asks the kernel for a flag without installing anything. "The
// kernel returns EFAULT for a supported flag when the filter address is NULL,
// and EINVAL for others."
// - tools/testing/selftests/seccomp/seccomp_bpf.c, detect_seccomp_filter_flags
func supported(bit uint) bool {
	if bit == 0 {
		return true
	}
	if bit == unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV {
		// Linux 5.19, commit c2aa2dfef243: only together with a listener.
		bit |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(bit), 0)
	return errno == unix.EFAULT
}

// filterFlags is the argument of seccomp(2) for a profile's flags.
func filterFlags(list []specs.LinuxSeccompFlag, listener bool) (uint, error) {
	var bits uint
	if list == nil {
		// As runc: a profile that is silent about flags does not ask for the
		// speculation barrier that costs every process in the container.
		bits = unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	}
	for i, name := range list {
		k := slices.IndexFunc(flags[:], func(f struct {
			name specs.LinuxSeccompFlag
			bit  uint
		},
		) bool {
			return f.name == name
		})
		if k < 0 {
			return 0, fmt.Errorf("seccomp.flags[%d]: unknown flag %q", i, name)
		}
		if name == specs.LinuxSeccompFlagWaitKillableRecv {
			if !listener {
				return 0, fmt.Errorf("seccomp.flags[%d]: %s needs a rule with %s", i, name, specs.ActNotify)
			}
			if !supported(flags[k].bit) {
				return 0, fmt.Errorf("seccomp.flags[%d]: %s: %w", i, name, errors.ErrUnsupported)
			}
		}
		bits |= flags[k].bit
	}
	if listener {
		bits |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	return bits, nil
}
