package seccomp

import (
	"sort"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// nameAt is name i of the table.
func nameAt(i int) string {
	start := uint16(0)
	if i > 0 {
		start = nameEnd[i-1]
	}
	return names[start:nameEnd[i]]
}

// lookup finds a name in the table, -1 if no architecture has it.
func lookup(name string) int {
	i, found := sort.Find(numNames, func(i int) int { return strings.Compare(name, nameAt(i)) })
	if !found {
		return -1
	}
	return i
}

// Number is the number that architecture a has for the system call name, with
// the interface's own base or bit in it (x32: 0x40000000). ok is false where
// the architecture, or the call on it, is not known.
func Number(a specs.Arch, name string) (nr uint32, ok bool) {
	arch, err := findArch(a)
	if err != nil {
		return 0, false
	}
	i := lookup(name)
	if i < 0 || codes[arch.column][i] == absent {
		return 0, false
	}
	return arch.number(codes[arch.column][i]), true
}

// Names lists every system call that architecture a has, in ascending order
// of names, and nil if the architecture is not known.
func Names(a specs.Arch) []string {
	arch, err := findArch(a)
	if err != nil {
		return nil
	}
	var list []string
	for i := range numNames {
		if codes[arch.column][i] != absent {
			list = append(list, nameAt(i))
		}
	}
	return list
}

// nameOf is the first name that has number nr on arch a, "" if none has.
func nameOf(a *arch, nr uint32) string {
	for i := range numNames {
		if code := codes[a.column][i]; code != absent && a.number(code) == nr {
			return nameAt(i)
		}
	}
	return ""
}

// multiplexed says through which call, and as which operation of it (its
// first argument), a call is also made on the architectures that have
// socketcall(2) (include/uapi/linux/net.h) and ipc(2) (ipc.h). through is ""
// for all other calls.
func multiplexed(name string) (through string, op uint64) {
	if op = socketOp(name); op != 0 {
		return "socketcall", op
	}
	if op = ipcOp(name); op != 0 {
		return "ipc", op
	}
	return "", 0
}

// socketOp and ipcOp are switches and not tables because they are asked about
// every name of a profile.
func socketOp(name string) uint64 {
	switch name {
	case "socket":
		return 1
	case "bind":
		return 2
	case "connect":
		return 3
	case "listen":
		return 4
	case "accept":
		return 5
	case "getsockname":
		return 6
	case "getpeername":
		return 7
	case "socketpair":
		return 8
	case "send":
		return 9
	case "recv":
		return 10
	case "sendto":
		return 11
	case "recvfrom":
		return 12
	case "shutdown":
		return 13
	case "setsockopt":
		return 14
	case "getsockopt":
		return 15
	case "sendmsg":
		return 16
	case "recvmsg":
		return 17
	case "accept4":
		return 18
	case "recvmmsg":
		return 19
	case "sendmmsg":
		return 20
	}
	return 0
}

func ipcOp(name string) uint64 {
	switch name {
	case "semop":
		return 1
	case "semget":
		return 2
	case "semctl":
		return 3
	case "semtimedop":
		return 4
	case "msgsnd":
		return 11
	case "msgrcv":
		return 12
	case "msgget":
		return 13
	case "msgctl":
		return 14
	case "shmat":
		return 21
	case "shmdt":
		return 22
	case "shmget":
		return 23
	case "shmctl":
		return 24
	}
	return 0
}
