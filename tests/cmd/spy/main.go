// Spy is the hostile program of tests/security. It runs in a container and goes
// for every process that appears beside it, until it is told to stop by the end
// of its input. What it gets it prints, one find a line:
//
//	find WHAT DETAIL
//
// and at last "seen N M": N processes that it saw, M of them before they had
// executed a program of the container. A find counts only if the process is still
// not a program of the container afterwards: those are fair game.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// programs are what the test executes in the container.
var programs = []string{"/bin/busybox", "/bin/spy"}

type spy struct {
	out         *bufio.Writer
	self        int
	found       map[string]bool
	seen, early int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "exe" {
		holdExe()
		return
	}
	runtime.LockOSThread() // a tracer is a thread (ptrace(2))
	var stop atomic.Bool
	fmt.Println("ready")
	go func() {
		os.Stdin.Read(make([]byte, 1)) //nolint:errcheck // the end is what counts
		stop.Store(true)
	}()
	s := &spy{out: bufio.NewWriter(os.Stdout), self: os.Getpid(), found: map[string]bool{}}
	last := s.self
	for !stop.Load() {
		if pid := lastPID(); pid > last {
			last = pid
			s.attack(pid)
		}
	}
	fmt.Fprintf(s.out, "seen %d %d\n", s.seen, s.early)
	s.out.Flush() //nolint:errcheck // its end shows in the missing line
}

// lastPID is the number given out last in our PID namespace: the fifth field of
// loadavg, proc_loadavg(5).
func lastPID() int {
	var buf [64]byte
	n, err := unix.Pread(loadavg(), buf[:], 0)
	if err != nil {
		return 0
	}
	f := strings.Fields(string(buf[:n]))
	pid, _ := strconv.Atoi(f[len(f)-1])
	return pid
}

var loadavg = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return fd
})

// attack tries all there is, with the process stopped if we may.
func (s *spy) attack(pid int) {
	if isThread(pid) {
		return
	}
	s.seen++
	stopped := unix.Kill(pid, unix.SIGSTOP) == nil
	if stopped {
		defer unix.Kill(pid, unix.SIGCONT) //nolint:errcheck // it may have ended
	}
	if !s.executed(pid) {
		s.early++
	}
	s.files(pid)
	s.memory(pid)
	s.descriptors(pid)
	s.namespaces(pid)
	s.status(pid)
}

func isThread(pid int) bool {
	_, err := os.Stat("/proc/self/task/" + strconv.Itoa(pid))
	return err == nil
}

// executed tells whether the process runs a program of the container by now, or
// is gone.
func (s *spy) executed(pid int) bool {
	exe, err := os.Readlink(proc(pid, "exe"))
	if err == nil {
		return slices.Contains(programs, exe)
	}
	// EACCES is a process that we may not look into. One that ends has no program
	// any more, and whether it was one of ours cannot be found out.
	return !errors.Is(err, unix.EACCES)
}

func (s *spy) find(pid int, what, detail string) {
	if s.executed(pid) {
		return
	}
	text := fmt.Sprintf("find %s %s\n", what, detail)
	if !s.found[text] {
		s.found[text] = true
		s.out.WriteString(text) //nolint:errcheck // see main
	}
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

func (s *spy) files(pid int) {
	for _, name := range []string{"exe", "root", "cwd"} {
		if to, err := os.Readlink(proc(pid, name)); err == nil {
			s.find(pid, name, to)
		}
	}
	for _, name := range []string{"exe", "mem", "maps", "environ", "auxv", "syscall", "stack", "smaps", "pagemap"} {
		fd, err := unix.Open(proc(pid, name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		// Some open for anyone and give nothing.
		if n, err := unix.Read(fd, make([]byte, 1)); name == "mem" || err == nil && n > 0 {
			s.find(pid, "open", name)
		}
		unix.Close(fd)
	}
	if fd, err := unix.Open(proc(pid, "mem"), unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		s.find(pid, "write", "mem")
		unix.Close(fd)
	}
	if maps, err := os.ReadDir(proc(pid, "map_files")); err == nil && len(maps) > 0 {
		s.find(pid, "list", "map_files")
	}
	if links, err := os.ReadDir(proc(pid, "fd")); err == nil {
		for _, l := range links {
			if to, err := os.Readlink(proc(pid, "fd/"+l.Name())); err == nil {
				s.find(pid, "fd", to)
			}
		}
	}
}

// textStart is where the linker puts a static Go program.
const textStart = 0x401000

func (s *spy) memory(pid int) {
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: textStart, Len: 8}}
	if _, err := unix.ProcessVMReadv(pid, local, remote, 0); err == nil {
		s.find(pid, "process_vm_readv", "text")
	}
	if err := unix.PtraceSeize(pid); err == nil {
		s.find(pid, "ptrace", "seize")
		// A tracee can be let go of only while it is stopped.
		if unix.PtraceInterrupt(pid) == nil {
			unix.Wait4(pid, nil, unix.WALL, nil) //nolint:errcheck // it may have ended
		}
		unix.PtraceDetach(pid) //nolint:errcheck // as above
	}
}

func (s *spy) descriptors(pid int) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(pidfd)
	for n := range 64 {
		if fd, err := unix.PidfdGetfd(pidfd, n, 0); err == nil {
			s.find(pid, "pidfd_getfd", link(fd))
			unix.Close(fd)
		}
	}
}

func link(fd int) string {
	to, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return to
}

func (s *spy) namespaces(pid int) {
	for _, ns := range []string{"mnt", "pid_for_children", "net", "user"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		if to, err := os.Readlink(proc(pid, "ns/"+ns)); err == nil && to != own {
			s.find(pid, "namespace", to)
		}
	}
}

// status is readable by everyone: what a process has before it executes.
func (s *spy) status(pid int) {
	if caps := line(pid, "CapPrm"); caps != "" {
		s.find(pid, "CapPrm", caps)
	}
	if caps := line(pid, "CapBnd"); caps != "" {
		s.find(pid, "CapBnd", caps)
	}
	if uid := line(pid, "Uid"); uid != "" {
		s.find(pid, "Uid", strings.ReplaceAll(uid, "\t", " "))
	}
}

func line(pid int, key string) string {
	text, _ := os.ReadFile(proc(pid, "status"))
	for l := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(l, key+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
