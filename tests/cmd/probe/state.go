package main

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// State is what "probe state" prints.
type State struct {
	Args, Env         []string
	Cwd               string
	Hostname          string
	Domainname        string
	UID, EUID         int
	GID, EGID         int
	Groups            []int
	Umask             int
	NoNewPrivs        int
	OOMScoreAdj       string
	SID, PGID, PPID   int
	Priority          int
	Personality       uintptr
	Status            map[string]string    // of /proc/self/status: CapInh ... SigIgn
	Limits            map[string][2]uint64 // soft, hard; NOFILE's soft one is the Go runtime's
	Namespaces        map[string]string
	Cgroup            string
	Mountinfo         string
	Affinity          int // CPUs that the process may use
	SecureBits        int
	PDeathSig         int
	Dumpable          int
	TimerSlackNS      int
	Keyring           string
	StdinIsATerminal  bool
	ControllingTTY    bool
	StandardFileOwner [3]uint32
}

var limits = map[string]int{
	"AS": unix.RLIMIT_AS, "CORE": unix.RLIMIT_CORE, "CPU": unix.RLIMIT_CPU, "DATA": unix.RLIMIT_DATA,
	"FSIZE": unix.RLIMIT_FSIZE, "LOCKS": unix.RLIMIT_LOCKS, "MEMLOCK": unix.RLIMIT_MEMLOCK,
	"MSGQUEUE": unix.RLIMIT_MSGQUEUE, "NICE": unix.RLIMIT_NICE, "NOFILE": unix.RLIMIT_NOFILE,
	"NPROC": unix.RLIMIT_NPROC, "RSS": unix.RLIMIT_RSS, "RTPRIO": unix.RLIMIT_RTPRIO,
	"RTTIME": unix.RLIMIT_RTTIME, "SIGPENDING": unix.RLIMIT_SIGPENDING, "STACK": unix.RLIMIT_STACK,
}

func state() error {
	s := State{
		Args: os.Args, Env: os.Environ(),
		UID: os.Getuid(), EUID: os.Geteuid(), GID: os.Getgid(), EGID: os.Getegid(),
		PPID: os.Getppid(), Status: map[string]string{}, Limits: map[string][2]uint64{},
		Namespaces: map[string]string{},
	}
	s.Umask = unix.Umask(0)
	s.Cwd, _ = os.Getwd()
	s.Groups, _ = os.Getgroups()
	s.SID, _ = unix.Getsid(0)
	s.PGID, _ = unix.Getpgid(0)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	s.Hostname, s.Domainname = unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Domainname[:])
	s.Priority, _ = unix.Getpriority(unix.PRIO_PROCESS, 0)
	s.Personality, _, _ = syscall.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	s.NoNewPrivs, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	s.SecureBits, _ = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	s.Dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	s.TimerSlackNS, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	s.OOMScoreAdj = text("/proc/self/oom_score_adj")
	s.Cgroup = text("/proc/self/cgroup")
	s.Mountinfo = text("/proc/self/mountinfo")
	for name, n := range limits {
		var l unix.Rlimit
		if err := unix.Getrlimit(n, &l); err == nil {
			s.Limits[name] = [2]uint64{l.Cur, l.Max}
		}
	}
	for line := range strings.Lines(text("/proc/self/status")) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			s.Status[k] = strings.TrimSpace(v)
		}
	}
	for _, n := range []string{"pid", "net", "mnt", "ipc", "uts", "user", "cgroup", "time"} {
		s.Namespaces[n], _ = os.Readlink("/proc/self/ns/" + n)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		s.Affinity = set.Count()
	}
	_, err := unix.IoctlGetTermios(0, unix.TCGETS)
	s.StdinIsATerminal = err == nil
	if fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY, 0); err == nil {
		s.ControllingTTY = unix.Close(fd) == nil
	}
	for i := range s.StandardFileOwner {
		var st unix.Stat_t
		if err := unix.Fstat(i, &st); err == nil {
			s.StandardFileOwner[i] = st.Uid
		}
	}
	if id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil {
		s.Keyring, _ = unix.KeyctlString(unix.KEYCTL_DESCRIBE, id)
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

func text(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSuffix(string(b), "\n")
}
