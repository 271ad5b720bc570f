// Package container is the OCI runtime: a bundle goes in, a living container
// comes out.
package container

import (
	"os"
	"time"
)

// Status is the state of a process, in the words of the OCI runtime
// specification, "State".
type Status int

// The states of a process.
const (
	Created Status = iota
	Running
	Paused
	Stopped
)

// RootfsMount is one mount of the container's root filesystem, as containerd's
// snapshotters describe it.
type RootfsMount struct {
	Type    string
	Source  string
	Target  string // below the root; empty for the root itself
	Options []string
}

// Stdio is what a process gets as descriptors 0, 1 and 2. A nil file is
// /dev/null. The files are borrowed: the caller closes them after the call.
// A process with a terminal gets the replica side of a new pty instead, and
// the three are ignored.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
	// Extra are given on as descriptors 3 and up. They have these numbers in this
	// process already: nothing of its own may be there.
	Extra []int
}

// CreateOptions says what to create.
type CreateOptions struct {
	// ID names the container: [A-Za-z0-9][A-Za-z0-9_.-]{0,127}.
	ID string
	// Bundle is the absolute path of the bundle directory, which holds
	// config.json. It must belong to root and not be writable by others.
	Bundle string
	// StateDir is where the record of the container is kept; empty means Bundle.
	StateDir string
	// Rootfs is mounted to become the root; empty means root.path as it stands.
	// The mounts exist in the container's mount namespace only.
	Rootfs []RootfsMount
	// Terminal must agree with process.terminal in config.json.
	Terminal bool
	Stdio    Stdio
	// Env is added to process.env of the first process, and of no other.
	Env []string
	// Detached is for a container that outlives this process: any process may
	// take it up (Open) and start it. StateDir is its own then.
	Detached bool
	// ExecTreeKill gives each exec a cgroup of its own below the container's, so
	// that a SIGKILL to it kills all that it has started. The annotation
	// io.ibex.exec-tree-kill overrides it.
	ExecTreeKill bool
	// NoNewKeyring keeps the session keyring of the caller.
	NoNewKeyring bool
	// OnExit is called once for every started process of the container after it
	// ended, in order: every exec before the first process. Calls come from one
	// goroutine; OnExit must not block. ExitStatus of the process is valid then.
	OnExit func(*Process)
	// OnOOM is called for each OOM kill in the container's cgroup, before the
	// OnExit of the process that it killed. It must not block.
	OnOOM func()
	// OnWarning is told of what went wrong without consequence, such as a
	// poststop hook that failed. It must not block.
	OnWarning func(error)
}

// ProcessInfo is one process in the container's cgroup.
type ProcessInfo struct {
	PID    int
	ExecID string // empty for the first process and for processes of its own
}

// ExitStatus is how a process ended.
type ExitStatus struct {
	// Code is the exit code, or 128 plus the signal's number.
	Code uint32
	At   time.Time
}

// WinSize is the size of a terminal in characters.
type WinSize struct{ Rows, Cols uint16 }
