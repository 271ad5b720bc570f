// Package exec turns the description of a process into a running process. It
// is the hot path of the runtime: everything is worked out in ordinary Go,
// compiled to a plan of system calls (package plan) and run in a forked child.
//
// The package knows Linux. It knows neither OCI nor containers: it takes
// descriptors, numbers and bytes.
package exec

import "golang.org/x/sys/unix"

// Process says what to run and with which rights. It is plain data; the zero
// value runs as root with no capabilities.
type Process struct {
	Args []string
	// Env is given to the program as it stands, duplicates included.
	Env []string
	// Path is the pathname for execve, already looked up (Lookup). Empty means
	// that it is sent later, see Start.Hold.
	Path string
	// Cwd is an absolute path inside the container; empty means "/".
	Cwd string

	UID, GID uint32
	// Groups are the supplementary groups, exactly: nothing is inherited.
	Groups []uint32
	Umask  uint32

	Caps Caps
	// AllCaps says that the bounding set is full before anything is dropped,
	// whatever this program's own set is: so it is in a new user namespace.
	AllCaps    bool
	NoNewPrivs bool
	// Rlimits are applied in order, RLIMIT_NOFILE last whatever its place.
	// Without one, the process gets the limit that this program was started
	// with, before the Go runtime raised it.
	Rlimits []Rlimit
	// OOMScoreAdj in [-1000, 1000]; nil leaves the inherited value.
	OOMScoreAdj *int
	Seccomp     *Filter
	// Keyring names the session keyring to join or create; empty keeps the
	// caller's.
	Keyring string
	// Labels are LSM labels, written in order.
	Labels []Label

	Scheduler *unix.SchedAttr
	// BirthAffinity holds until the process is in its cgroup, Affinity then: CPU n
	// is bit n%8 of byte n/8. Empty leaves what was inherited.
	BirthAffinity, Affinity []byte
	IOPriority              *int // as ioprio_set(2) takes it: class << 13 | level
	Personality             *uint32
	MemoryPolicy            *MemoryPolicy

	// Stdio are the descriptors for 0, 1 and 2, borrowed. With Terminal, 0
	// becomes the controlling terminal of a new session.
	Stdio    [3]int
	Terminal bool
	// Extra are the descriptors for 3 and up, borrowed.
	Extra []int
}

// first is the lowest number that is free for descriptors of our own.
func (p *Process) first() int { return 3 + len(p.Extra) }

// Rlimit is one resource limit, as prlimit(2) takes it.
type Rlimit struct {
	Resource  int
	Soft, Max uint64
}

// MemoryPolicy is a NUMA memory policy, as set_mempolicy(2) takes it.
type MemoryPolicy struct {
	Mode  uint   // with its flags
	Nodes []byte // node n is bit n%8 of byte n/8
}

// Filter is a compiled seccomp program.
type Filter struct {
	Program []unix.SockFilter
	Flags   uint // SECCOMP_FILTER_FLAG_*
}

// listens reports whether loading the filter gives a listener.
func (f *Filter) listens() bool { return f.Flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 }

// Label is an LSM label and the file below /proc/thread-self/attr that takes it.
type Label struct {
	File  string // such as "exec" or "apparmor/exec"
	Value string
	About string // what an error calls it
}

// Place says where the process runs.
type Place struct {
	// Proc is a detached procfs instance of the caller's PID namespace.
	Proc int
	// New are the CLONE_NEW* flags of namespaces made for the process at its
	// birth. CLONE_NEWCGROUP is made later, after the process is in its cgroup,
	// so that the cgroup becomes the root of the namespace.
	New int
	// Join are namespaces entered by descriptor, in order.
	Join []Namespace
	// JoinOf is a pidfd of a process whose namespaces JoinMask are entered at
	// once (setns(2) with a pidfd: Linux 5.8); -1 for none.
	JoinOf   int
	JoinMask int
	// CgroupTasks are v1 directories into whose tasks file the process writes
	// itself, CgroupProcs v2 directories, by cgroup.procs. CgroupInto, when not
	// -1, is the v2 directory that it is born in (CLONE_INTO_CGROUP: Linux 5.7).
	CgroupTasks, CgroupProcs []int
	CgroupInto               int
	// CgroupBelow are v2 directories that the process moves to when its cgroup
	// namespace is made, which then does not begin at them.
	CgroupBelow []int
}

// Namespace is a namespace to enter.
type Namespace struct {
	Type int // CLONE_NEW*
	FD   int
	Name string // for the printed plan: "net", "ipc", ...
}

// joins reports whether the process enters an existing namespace of a kind.
func (p *Place) joins(kind int) bool {
	if p.JoinOf >= 0 && p.JoinMask&kind != 0 {
		return true
	}
	for _, n := range p.Join {
		if n.Type == kind {
			return true
		}
	}
	return false
}

// late reports whether the new namespaces are made by the forked child and not
// by the fork: they are to belong to a user namespace, which it has to join
// first, and that comes after what needs the host's privileges.
func (p *Place) late() bool { return p.New != 0 && p.joins(unix.CLONE_NEWUSER) }

// forks reports whether a second fork is needed: joining a PID namespace, and
// making one late, is for children only (pid_namespaces(7)).
func (p *Place) forks() bool {
	return p.joins(unix.CLONE_NEWPID) || p.late() && p.New&unix.CLONE_NEWPID != 0
}

// atFork are the flags of namespaces made by the fork itself.
func (p *Place) atFork() uint64 {
	if p.late() {
		return 0
	}
	return uint64(p.New &^ unix.CLONE_NEWCGROUP)
}
