package exec

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Caps are the five capability sets of a process, one bit a capability.
type Caps struct {
	Bounding, Effective, Permitted, Inheritable, Ambient uint64
}

// And keeps in every set only what mask has.
func (c Caps) And(mask uint64) Caps {
	return Caps{c.Bounding & mask, c.Effective & mask, c.Permitted & mask, c.Inheritable & mask, c.Ambient & mask}
}

// capNames are the capabilities by number; capabilities(7), Linux 6.18.
var capNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// CapBit returns the number of the capability called name, with or without
// "CAP_", in any case.
func CapBit(name string) (int, bool) {
	n := strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	for i, c := range capNames {
		if c == n {
			return i, true
		}
	}
	return 0, false
}

// CapNames lists the known capabilities as OCI spells them.
func CapNames() []string {
	out := make([]string, len(capNames))
	for i, c := range capNames {
		out[i] = "CAP_" + c
	}
	return out
}

// lastCap is the highest capability of the running kernel.
//
// /proc/sys/kernel/cap_last_cap: Linux 3.2. Asking the kernel by prctl needs no
// file: PR_CAPBSET_READ of an unknown capability is EINVAL (prctl(2)).
var lastCap = sync.OnceValue(func() int {
	for c := 63; c >= 0; c-- {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil {
			return c
		}
	}
	return -1
})

// bounding is the bounding set that this process has: what is not in it cannot
// be given to anyone, and need not be dropped.
var bounding = sync.OnceValue(func() uint64 {
	var set uint64
	for c := 0; c <= lastCap(); c++ {
		if v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil && v == 1 {
			set |= 1 << c
		}
	}
	return set
})

// Held is the set of capabilities that this process may give to others.
func Held() uint64 { return bounding() }

// AllCaps is the set of all capabilities of the running kernel.
func AllCaps() uint64 { return 1<<(lastCap()+1) - 1 }

// CapSetString prints a capability set for errors and logs.
func CapSetString(set uint64) string {
	var names []string
	for i := 0; i < 64; i++ {
		if set&(1<<i) == 0 {
			continue
		}
		if i < len(capNames) {
			names = append(names, "CAP_"+capNames[i])
		} else {
			names = append(names, strconv.Itoa(i))
		}
	}
	return strings.Join(names, ",")
}

// inheritedNofile is the RLIMIT_NOFILE this program was started with. The Go
// runtime raises the soft limit before main; it puts the first value back in
// syscall.Exec, so an Exec that cannot succeed gives it to us. Afterwards the
// limit is raised again.
var inheritedNofile = sync.OnceValues(func() (unix.Rlimit, error) {
	var first, now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return first, os.NewSyscallError("getrlimit", err)
	}
	unix.Exec("", []string{""}, nil) //nolint:errcheck // always ENOENT: an empty pathname (execve(2))
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &first); err != nil {
		return first, os.NewSyscallError("getrlimit", err)
	}
	if first == now {
		return first, nil
	}
	return first, os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_NOFILE, &now))
})

// RememberLimits notes the limits that this program was started with. A
// program that starts others calls it first thing: it lowers RLIMIT_NOFILE for
// a moment.
func RememberLimits() error {
	_, err := inheritedNofile()
	return err
}
