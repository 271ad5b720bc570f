package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pids lists the processes of this machine except this one.
func pids() []int {
	var all []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			all = append(all, pid)
		}
	}
	return all
}

// cmdline gives the arguments of a process, none if it has ended.
func cmdline(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 1 && !errors.Is(unix.Kill(n, 0), unix.ESRCH)
}

// testsRunning reports whether a Go test binary runs: go test names them so.
func testsRunning() bool {
	for _, pid := range pids() {
		if args := cmdline(pid); len(args) > 0 && strings.HasSuffix(args[0], ".test") {
			return true
		}
	}
	return false
}

// endProcesses kills what names one of dirs on its command line, as containerd
// and the shims do, and what lives in one of groups, and waits until it is gone.
func (c *cleaner) endProcesses(dirs, groups []string) error {
	deadline := time.Now().Add(10 * time.Second)
	reported := map[int]bool{}
	for {
		found := 0
		for _, pid := range pids() {
			// The pidfd first, the question whether it is one of ours after: between
			// the two the number cannot come to mean another process.
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			if ours(pid, dirs, groups) {
				found++
				if !reported[pid] {
					reported[pid] = true
					c.say("process", strings.Join(append([]string{strconv.Itoa(pid)}, cmdline(pid)...), " "))
				}
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // ESRCH: it has ended, which is what we want
			}
			unix.Close(fd)
		}
		if found == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of an earlier run do not end", found)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func ours(pid int, dirs, groups []string) bool {
	for _, arg := range cmdline(pid) {
		for _, d := range dirs {
			if arg == d || strings.Contains(arg, d+"/") {
				return true
			}
		}
	}
	if len(groups) == 0 || zombie(pid) {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		_, path, _ := strings.Cut(strings.TrimSpace(line), ":/")
		for _, g := range groups {
			_, rel, _ := strings.Cut(strings.TrimPrefix(g, cgroupRoot+"/"), "/") // without the hierarchy's name
			if rel != "" && (path == rel || strings.HasPrefix(path, rel+"/")) {
				return true
			}
			if unified, _ := filepath.Rel(cgroupRoot, g); path == unified || strings.HasPrefix(path, unified+"/") {
				return true
			}
		}
	}
	return false
}

// zombie reports whether only the parent's wait is missing.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(after, "Z")
}
