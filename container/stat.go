package container

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ibex-run/ibex/pathsafe"
)

// procStat is what counts here of /proc/PID/stat, proc_pid_stat(5).
type procStat struct {
	state byte   // field 3: 'Z' is one that ended and was not waited for
	flags uint64 // field 9: PF_*
	start uint64 // field 22: clock ticks since boot
}

// forkNoExec: PF_FORKNOEXEC, include/linux/sched.h. The kernel sets it at fork and
// takes it away at execve (begin_new_exec, fs/exec.c).
const forkNoExec = 0x40

// readStat reads a process's stat file. The name in it may hold anything, so
// fields are counted from its closing parenthesis.
func readStat(proc *pathsafe.Proc, pidfd, pid int) (st procStat, err error) {
	f, err := proc.Pid(pidfd, pid, pathsafe.MustRel("stat"))
	if err != nil {
		return st, err
	}
	defer f.Close()
	var buf [1024]byte
	n, err := f.ReadAt0(buf[:])
	if err != nil {
		return st, err
	}
	text := string(buf[:n])
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const first, flags, start = 3, 9 - 3, 22 - 3
	if len(fields) <= start {
		return st, fmt.Errorf("parse the stat file of process %d: too few fields", pid)
	}
	st.state = fields[0][0]
	if st.flags, err = strconv.ParseUint(fields[flags], 10, 64); err != nil {
		return st, fmt.Errorf("parse the stat file of process %d: field %d: %w", pid, flags+first, err)
	}
	if st.start, err = strconv.ParseUint(fields[start], 10, 64); err != nil {
		return st, fmt.Errorf("parse the stat file of process %d: field %d: %w", pid, start+first, err)
	}
	return st, nil
}
