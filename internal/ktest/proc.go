package ktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Proc is a process as /proc shows it.
type Proc struct {
	PID, PPID int
	State     byte     // R, S, D, T, Z, ...
	Start     uint64   // clock ticks after boot; with PID it names a process for good
	Cmd       []string // empty for a zombie
}

// String says what a failed test needs to know.
func (p Proc) String() string {
	return fmt.Sprintf("process %d (parent %d, state %c) %q", p.PID, p.PPID, p.State, strings.Join(p.Cmd, " "))
}

// Procs lists the processes of this PID namespace. A process that ends
// meanwhile is left out.
func Procs() []Proc {
	names, _ := filepath.Glob("/proc/[1-9]*")
	var ps []Proc
	for _, n := range names {
		pid, err := strconv.Atoi(filepath.Base(n))
		if err != nil {
			continue
		}
		if p, err := ReadProc(pid); err == nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// ReadProc reads one process.
//
// proc_pid_stat(5): the second field is the name in parentheses, which may hold
// anything, so fields are counted from the last ")".
func ReadProc(pid int) (Proc, error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Proc{}, err
	}
	i := bytes.LastIndexByte(stat, ')')
	f := strings.Fields(string(stat[i+1:]))
	if i < 0 || len(f) < 20 {
		return Proc{}, fmt.Errorf("read %sstat: unexpected text %q", dir, stat)
	}
	p := Proc{PID: pid, State: f[0][0]}
	if p.PPID, err = strconv.Atoi(f[1]); err != nil {
		return Proc{}, err
	}
	if p.Start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return Proc{}, err
	}
	cmd, err := os.ReadFile(dir + "cmdline")
	if err != nil {
		return Proc{}, err
	}
	if len(cmd) > 0 {
		p.Cmd = strings.Split(strings.TrimRight(string(cmd), "\x00"), "\x00")
	}
	return p, nil
}

// Alive tells whether the process exists and is no zombie.
func Alive(pid int) bool {
	p, err := ReadProc(pid)
	return err == nil && p.State != 'Z' && p.State != 'X'
}

// Children lists the processes whose parent is pid, zombies included.
func Children(pid int) []Proc {
	return slices.DeleteFunc(Procs(), func(p Proc) bool { return p.PPID != pid })
}

// HasEnv tells whether the process was started with the variable, given as
// NAME=value. Forked children have it until they execute something else.
func HasEnv(pid int, variable string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	return slices.Contains(strings.Split(string(env), "\x00"), variable)
}

// FDs lists what the descriptors of a process refer to, sorted, so that two
// readings can be compared.
func FDs(pid int) []string {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	var fds []string
	for _, n := range names {
		if l, err := os.Readlink(n); err == nil {
			fds = append(fds, l)
		}
	}
	slices.Sort(fds)
	return fds
}

// Threads counts the threads of a process.
func Threads(pid int) int {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	return len(names)
}

// StatusField returns a field of /proc/PID/status, such as "Threads", without
// surrounding space, or "" when it is not there.
func StatusField(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
