package exec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// Start describes one start: a process, its place, and what the caller adds.
type Start struct {
	Process *Process
	Place   *Place
	// Setup adds the steps that build the container around its first process;
	// they run with all privileges, inside the new namespaces. Calling pause adds
	// a stop, at which Pause is called. SetupFDs are the descriptors that these
	// steps use.
	Setup    func(b *plan.Builder, pause func())
	SetupFDs []int
	Pause    func(c *Child) error
	// SetupInside puts Setup after the fork into a joined PID namespace instead
	// of before it: needed only where procfs has to be made from inside.
	SetupInside bool
	// Hold makes the process report that it is ready and wait, just before
	// execve, for Child.Release with the pathname.
	Hold bool
	// Detach makes a held process wait at a FIFO instead, so that this program
	// may end: see ReleaseDetached.
	Detach *Detach
	// Migrate keeps the process out of its cgroup until it waits; the caller
	// moves it (Child.Release). It is the way in when the cgroup's pids limit
	// refuses a fork, since it does not limit migration (cgroups(7)).
	Migrate bool
	// Listener gets the listener of a seccomp filter that has one, which it borrows,
	// and the PID of the process.
	Listener func(fd, pid int) error
	// Notify, if set, is called when the process was reaped. It must not block.
	Notify func()
}

// Messages on the handshake socket are told apart by their size; a failure has
// a size of its own (plan.Failure).
const (
	readyMsg   = "r"  // child to parent: waiting for the pathname
	pauseMsg   = "pa" // child to parent: waiting to go on
	goMsg      = "g"  // parent to child: go on
	pidMsg     = 8    // helper to parent: the PID of the process (WriteSlot)
	releaseLen = 4096 // parent to child: the pathname, NUL-padded (PATH_MAX)
)

// compile turns s into a plan. sock is the child's end of the handshake.
//
// The order of the steps, and why:
//
//	 0 non-dumpable                   the copy of our memory is for nobody, whatever we are ourselves (hide)
//	 1 stdio, close everything else   nothing of the host is left to leak, and no pipe is held open
//	 2 oom_score_adj                  through procfs, by the process itself, while it may lower the value
//	 3 cgroups (v1)                   before the cgroup namespace, so that its root is this cgroup
//	   affinity, scheduler, I/O       in the cgroup, which bounds them; with the host's CAP_SYS_NICE
//	 4 namespaces                     joins, the user namespace last of them; then the new ones that the fork
//	                                  did not make: all if they belong to that user namespace, else the cgroup's
//	 5 Setup                          mounts and all that needs outside privilege
//	 6 cwd, checked by getcwd         an absolute path that is reachable, or nothing starts
//	 7 label, keyring                 need procfs, or the privilege that goes next; the keyring gets the label
//	 8 limits                         raising them needs CAP_SYS_RESOURCE; nothing is opened after
//	 9 bounding set                   needs CAP_SETPCAP
//	10 no_new_privs, or seccomp       seccomp without no_new_privs needs CAP_SYS_ADMIN
//	11 groups, gid, uid, capabilities groups before ids; the kept set last
//	12 fork into the PID namespace    F is born with the final rights and descriptors; before 5 where Setup
//	                                  has to be inside
//	13 session, terminal              TIOCSCTTY needs the session leader itself
//	14 ready, wait                    Hold only
//	15 seccomp                        with no_new_privs: nothing follows but execve
//	16 execve
func compile(s *Start, sock int) (*plan.Plan, error) {
	p, at := s.Process, s.Place
	if len(p.Args) == 0 {
		return nil, errors.New("process.args: empty")
	}
	if p.Scheduler != nil && p.Scheduler.Policy == unix.SCHED_DEADLINE && at.forks() {
		// Such a task cannot fork, and its child would not be one (sched(7)).
		return nil, errors.New("process.scheduler: SCHED_DEADLINE is not possible for a process that joins a PID namespace")
	}
	limits, err := rlimits(p.Rlimits)
	if err != nil {
		return nil, err
	}
	b := plan.NewBuilder()
	sk := plan.Num(sock, "sock")
	proc := plan.Num(at.Proc, "procfs")

	if err := s.checkExtra(sock); err != nil {
		return nil, err
	}
	hide(b)
	stdio(b, p)
	keepOnly(b, p.first(), s.descriptors(sock))
	for _, sig := range ignoredSignals() {
		b.RtSigactionDefault(sig)
	}
	if len(p.BirthAffinity) > 0 {
		b.SchedSetaffinity(p.BirthAffinity)
	}
	if p.OOMScoreAdj != nil {
		writeProc(b, proc, "oom_score_adj", fmt.Sprint(*p.OOMScoreAdj))
	}
	if !s.Migrate {
		joinCgroups(b, at.CgroupTasks, "tasks")
		joinCgroups(b, at.CgroupProcs, "cgroup.procs")
	}
	scheduling(b, p, at.forks())
	user := at.joins(unix.CLONE_NEWUSER)
	if user {
		if err := raiseLimits(b, limits); err != nil {
			return nil, err
		}
	}
	joinNamespaces(b, at)
	if user {
		// Until now we are an id that the namespace may not know.
		b.Setresgid(0, 0, 0)
		b.Setresuid(0, 0, 0)
	}
	if at.late() {
		b.Unshare(at.New)
	} else if at.New&unix.CLONE_NEWCGROUP != 0 {
		b.Unshare(unix.CLONE_NEWCGROUP)
	}
	joinCgroups(b, at.CgroupBelow, "cgroup.procs")

	forks, inside := at.forks(), s.SetupInside || at.late()
	if forks && inside {
		forkInto(b, sk)
	}
	if s.Setup != nil {
		s.Setup(b, func() { pause(b, sk) })
	}
	b.About("process.cwd")
	cwd(b, p.Cwd)
	for _, l := range p.Labels {
		b.About(l.About)
		writeProc(b, proc, "attr/"+l.File, l.Value)
	}
	b.About("")
	if p.Keyring != "" {
		// Without CONFIG_KEYS there is nothing to keep apart.
		b.KeyctlJoinSession(p.Keyring)
		b.Tolerate(unix.ENOSYS)
	}
	keepOnly(b, p.first(), s.handshakeFDs(sock))
	b.About("process.rlimits")
	limits, late, err := lateLimits(b, s, limits, sock)
	if err != nil {
		return nil, err
	}
	for _, l := range limits {
		b.Prlimit(l.Resource, l.Soft, l.Max)
	}
	b.About("")
	credentials(b, p, sk)
	if forks && !inside {
		forkInto(b, sk)
	}
	if at.forks() {
		resetOnFork(b, p)
	}
	b.Setsid()
	if p.Terminal {
		b.Ioctl(plan.Num(0, "stdin"), unix.TIOCSCTTY, 0)
	}
	last := p.NoNewPrivs && p.Seccomp != nil
	if last && s.Hold && p.Seccomp.listens() {
		// The listener goes by the socket, which a detached process gives up.
		loadFilter(b, p, sk)
		last = false
	}
	path := finish(b, s, sock, late)
	if last {
		loadFilter(b, p, sk)
	}
	if s.Hold {
		b.ExecveBuf(path, p.Args, p.Env)
	} else {
		b.Execve(p.Path, p.Args, p.Env)
	}
	return b.Plan()
}

// hide makes the child unreadable to those whose namespaces it joins: without
// CAP_SYS_PTRACE in the first user namespace nobody can trace it or open its
// descriptors, root of the container's own user namespace included (ptrace(2),
// CVE-2016-9962). The fork has memory of its own, so this is about the child
// alone; execve sets it back.
func hide(b *plan.Builder) { b.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// descriptors lists what the steps need above 2.
func (s *Start) descriptors(sock int) []int {
	keep := append(s.handshakeFDs(sock), s.SetupFDs...)
	if s.Process.OOMScoreAdj != nil || len(s.Process.Labels) > 0 {
		keep = append(keep, s.Place.Proc)
	}
	if !s.Migrate {
		keep = append(keep, s.Place.CgroupTasks...)
		keep = append(keep, s.Place.CgroupProcs...)
	}
	keep = append(keep, s.Place.CgroupBelow...)
	for _, n := range s.Place.Join {
		keep = append(keep, n.FD)
	}
	if s.Place.JoinOf >= 0 {
		keep = append(keep, s.Place.JoinOf)
	}
	return keep
}

// writeProc writes value to a file of this very task. The process opens it
// itself: the kernel refuses a descriptor that another process opened (LSM
// attributes, Linux 5.13) and a non-dumpable process is root's in procfs.
func writeProc(b *plan.Builder, proc plan.FD, file, value string) {
	f := b.Openat2(proc, "thread-self/"+file, unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	b.Write(f.FD(), []byte(value))
	b.Want(uintptr(len(value)))
	b.Close(f.FD())
}

// joinCgroups makes the process write itself into each cgroup. A descriptor of
// the file is never passed in: the kernel judges a migration by the rights of
// whoever opened it.
//
// Of v1 it is the tasks file. A thread that moves itself needs no lock there
// (Linux 5.5, commit 9a3284fad42f: "cgroup: Optimize single thread migration");
// cgroup.procs takes one that waits for all CPUs, 10 ms where nobody did lately.
func joinCgroups(b *plan.Builder, dirs []int, file string) {
	for _, d := range dirs {
		f := b.Openat2(plan.Num(d, "cgroup"), file, unix.OpenHow{
			Flags: unix.O_WRONLY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS |
				unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		b.Write(f.FD(), []byte("0"))
		b.Want(1)
		b.Close(f.FD())
	}
}

func joinNamespaces(b *plan.Builder, at *Place) {
	if at.JoinOf >= 0 && at.JoinMask != 0 {
		b.Setns(plan.Num(at.JoinOf, "init"), at.JoinMask)
	}
	for _, n := range at.Join {
		b.Setns(plan.Num(n.FD, n.Name), n.Type)
	}
}

// raiseLimits raises hard limits that a process of another user namespace could
// not raise any more: that takes CAP_SYS_RESOURCE in the first one (prlimit(2)).
// The limits themselves are set at the end.
func raiseLimits(b *plan.Builder, limits []Rlimit) error {
	for _, l := range limits {
		var own unix.Rlimit
		if err := unix.Getrlimit(l.Resource, &own); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		if l.Max > own.Max {
			b.Prlimit(l.Resource, own.Cur, l.Max)
		}
	}
	return nil
}

// lateLimits takes RLIMIT_NOFILE out of the limits where it is too low for the
// number that a detached process still has to put a descriptor at: EBADF, dup(2).
// Only raising it takes a privilege, so that is done here.
func lateLimits(b *plan.Builder, s *Start, in []Rlimit, sock int) (now, late []Rlimit, err error) {
	last := in[len(in)-1] // see rlimits
	if s.Detach == nil || last.Soft > uint64(sock) {
		return in, nil, nil
	}
	late = []Rlimit{last}
	return in[:len(in)-1], late, raiseLimits(b, late)
}

// cwd enters the working directory and proves that it lies inside the root: a
// directory outside is shown by getcwd as "(unreachable)/..." (getcwd(2)),
// which is how a leaked descriptor of the host would become the cwd
// (CVE-2024-21626).
func cwd(b *plan.Builder, dir string) {
	if dir == "" {
		dir = "/"
	}
	// The present directory is what RESOLVE_IN_ROOT takes for the root.
	b.Chdir("/")
	d := b.Openat2(plan.Cwd, dir, unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	b.Fchdir(d.FD())
	buf := b.NewBuf(unix.PathMax)
	b.Getcwd(buf)
	b.ExpectByte(buf, 0, '/', unix.ENOENT)
}

// ioprioWhoProcess: ioprio_set(2), IOPRIO_WHO_PROCESS.
const ioprioWhoProcess = 1

// AllCPUs is the mask of every CPU; the kernel keeps those of the cpuset.
var AllCPUs = bytes.Repeat([]byte{0xff}, 1024)

// schedResetOnFork: SCHED_FLAG_RESET_ON_FORK, sched_setattr(2).
const schedResetOnFork = 0x01

func scheduling(b *plan.Builder, p *Process, forks bool) {
	b.About("process.execCPUAffinity")
	if len(p.Affinity) > 0 {
		b.SchedSetaffinity(p.Affinity)
	}
	b.About("process.scheduler, ioPriority")
	defer b.About("")
	if p.Scheduler != nil {
		attr := *p.Scheduler
		if forks {
			attr.Flags &^= schedResetOnFork // it would end with the fork, see resetOnFork
		}
		b.SchedSetattr(attr)
	}
	if p.IOPriority != nil {
		b.IoprioSet(ioprioWhoProcess, 0, *p.IOPriority)
	}
	if m := p.MemoryPolicy; m != nil {
		b.About("linux.memoryPolicy")
		b.SetMempolicy(m.Mode, m.Nodes)
	}
	if p.Personality != nil {
		b.Personality(uint(*p.Personality))
	}
}

// resetOnFork sets SCHED_FLAG_RESET_ON_FORK in the process itself. Adding it to
// what one has takes no privilege (sched(7)).
func resetOnFork(b *plan.Builder, p *Process) {
	if p.Scheduler != nil && p.Scheduler.Flags&schedResetOnFork != 0 {
		b.About("process.scheduler")
		b.SchedSetattr(*p.Scheduler)
		b.About("")
	}
}

// credentials gives up everything that the process is not to have.
// capabilities(7), user_namespaces(7); the order is step 9 to 11 of compile.
func credentials(b *plan.Builder, p *Process, sock plan.FD) {
	have := bounding()
	if p.AllCaps {
		have = ^uint64(0)
	}
	for c := 0; c <= lastCap(); c++ {
		if bit := uint64(1) << c; have&bit != 0 && p.Caps.Bounding&bit == 0 {
			b.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	if p.NoNewPrivs {
		b.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	} else if p.Seccomp != nil {
		loadFilter(b, p, sock)
	}
	b.Umask(int(p.Umask))
	// Always, even for an empty list: the caller's groups are never inherited.
	b.Setgroups(p.Groups)
	// A change of uid clears the permitted set unless this is on.
	b.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0)
	b.Setresgid(p.GID, p.GID, p.GID)
	b.Setresuid(p.UID, p.UID, p.UID)
	b.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0)
	b.Capset(p.Caps.Effective, p.Caps.Permitted, p.Caps.Inheritable)
	b.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	for c := 0; c <= lastCap(); c++ {
		if p.Caps.Ambient&(1<<c) != 0 {
			b.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0)
		}
	}
}

// forkInto clones F, which becomes a child of our parent (CLONE_PARENT) inside
// the PID namespace joined before. The helper reports F's PID, as the host
// counts, and ends.
func forkInto(b *plan.Builder, sock plan.FD) {
	inside := b.NewLabel()
	pid := b.Clone(unix.CLONE_PARENT)
	b.OnZero(inside)
	b.WriteSlot(sock, pid)
	b.Exit(0)
	b.Place(inside)
}

// finish adds the hand-over to the parent, and returns the buffer that will
// hold the pathname.
func finish(b *plan.Builder, s *Start, sock int, late []Rlimit) plan.Buf {
	if !s.Hold {
		return 0
	}
	path := b.NewBuf(releaseLen)
	b.Write(plan.Num(sock, "sock"), []byte(readyMsg))
	b.Want(uintptr(len(readyMsg)))
	if d := s.Detach; d != nil {
		// From here on a failure goes to the FIFO: it takes the socket's number.
		b.Dup3(plan.Num(d.Status, "status"), sock, unix.O_CLOEXEC)
		b.Close(plan.Num(d.Status, "status"))
		for _, l := range late {
			b.Prlimit(l.Resource, l.Soft, l.Max)
		}
		b.Read(plan.Num(d.Go, "go"), path, releaseLen)
		b.Want(releaseLen)
		return path
	}
	// A parent that died gives 0 bytes: the process ends.
	b.Read(plan.Num(sock, "sock"), path, releaseLen)
	b.Want(releaseLen)
	return path
}

// handshakeFDs are what the last steps need.
func (s *Start) handshakeFDs(sock int) []int {
	if d := s.Detach; d != nil {
		return []int{sock, d.Go, d.Status}
	}
	return []int{sock}
}

// pause stops until the parent says go; a parent that died lets it end.
func pause(b *plan.Builder, sock plan.FD) {
	b.Write(sock, []byte(pauseMsg))
	answer := b.NewBuf(len(goMsg))
	b.Read(sock, answer, len(goMsg))
	b.Want(uintptr(len(goMsg)))
}

// rlimits puts RLIMIT_NOFILE last and fills it in where it is missing.
func rlimits(in []Rlimit) ([]Rlimit, error) {
	out := slices.Clone(in)
	slices.SortStableFunc(out, func(a, b Rlimit) int {
		return last(a) - last(b)
	})
	if len(out) > 0 && out[len(out)-1].Resource == unix.RLIMIT_NOFILE {
		return out, nil
	}
	first, err := inheritedNofile()
	if err != nil {
		return nil, err
	}
	return append(out, Rlimit{unix.RLIMIT_NOFILE, first.Cur, first.Max}), nil
}

func last(l Rlimit) int {
	if l.Resource == unix.RLIMIT_NOFILE {
		return 1
	}
	return 0
}
