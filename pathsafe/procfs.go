package pathsafe

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// Proc is the root of a procfs of our own, mounted nowhere. Nobody can mount
// over its files unless he holds its descriptor, so it must not be handed out;
// PolicyProc crosses no mounts all the same, because since Linux 6.15 whoever
// does hold it can.
type Proc struct{ *Dir }

// procRoot is the inode of the root of every procfs: PROC_ROOT_INO in
// include/linux/proc_ns.h.
const procRoot = 1

// OpenProc makes a procfs for the pid namespace of the calling thread. With
// subset it holds processes only; without, also /proc/sys, for sysctls, and
// should be closed soon. It is never the host's /proc. Requires CAP_SYS_ADMIN.
//
// It costs about 30 microseconds.
func OpenProc(subset bool) (*Proc, error) {
	tree := "procfs"
	if subset {
		tree = "procfs of processes"
	}
	d := &Dir{policy: PolicyProc, tree: tree, host: true}
	fsfd, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, d.fail("fsopen", "", errnoOf(err))
	}
	defer unix.Close(fsfd)
	// The options are those of this instance alone since Linux 5.8, commit
	// fa10fed30f25 ("proc: allow to mount many instances of proc in one pid
	// namespace"). hidepid is looked up with the reader's credentials: if the
	// descriptor leaked, a container would see its own processes at most.
	if err := unix.FsconfigSetString(fsfd, "hidepid", "ptraceable"); err != nil {
		return nil, d.fail("fsconfig", "hidepid", errnoOf(err))
	}
	if subset {
		if err := unix.FsconfigSetString(fsfd, "subset", "pid"); err != nil {
			return nil, d.fail("fsconfig", "subset", errnoOf(err))
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, d.fail("fsconfig", "", errnoOf(err))
	}
	raw, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC,
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, d.fail("fsmount", "", errnoOf(err))
	}
	raw, errno := linux.NotStdio(raw)
	if errno != 0 {
		return nil, d.fail("fcntl", "", errno)
	}
	if d.id, errno = ident(raw); errno != 0 {
		_ = unix.Close(raw)
		return nil, d.fail("statx", "", errno)
	}
	if d.id.FSType != fsProc || d.id.Ino != procRoot {
		_ = unix.Close(raw)
		return nil, d.refuse("", ErrType, "not the root of a procfs")
	}
	d.fd.Init(raw)
	return &Proc{d}, nil
}

// Self opens the file r of the calling thread's own directory for reading. The
// goroutine may be moved to another thread afterwards; for what differs between
// threads the caller locks it first.
func (p *Proc) Self(r Rel) (*File, error) {
	if errno := valid(r.c); errno != 0 {
		return nil, p.fail("openat2", "", errno)
	}
	return p.openProc("thread-self/"+r.String(), unix.O_RDONLY)
}

// Pid opens the file r of a process for reading. pidfd must be the process's,
// and pid its number in the shim's pid namespace: both come from clone3, or pid
// from the pidfd. After the open, pidfd proves that the number has not been given
// to another process yet, so the file is the right one; else the error is
// ErrGone. The process may have exited, but was not reaped.
func (p *Proc) Pid(pidfd, pid int, r Rel) (*File, error) {
	return p.openPid(pidfd, pid, r, unix.O_RDONLY)
}

// WritePid gives data to the file r of a process in exactly one write(2), such
// as oom_score_adj or uid_map. See Pid.
func (p *Proc) WritePid(pidfd, pid int, r Rel, data []byte) error {
	f, err := p.openPid(pidfd, pid, r, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(data)
	return err
}

func (p *Proc) openPid(pidfd, pid int, r Rel, flags uint64) (*File, error) {
	if errno := valid(r.c); errno != 0 || pid <= 0 {
		return nil, p.fail("openat2", r.String(), unix.EINVAL)
	}
	path := strconv.Itoa(pid) + "/" + r.String()
	f, err := p.openProc(path, flags)
	if err != nil {
		// No such process, and no such file of a process that lives.
		if alive := p.alive(pidfd, path); alive != nil {
			return nil, alive
		}
		return nil, err
	}
	if err := p.alive(pidfd, path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// alive is nil if the process behind pidfd was not reaped.
func (p *Proc) alive(pidfd int, path string) error {
	err := linux.PidfdAlive(pidfd)
	if err == nil {
		return nil
	}
	e := p.fail("pidfd_send_signal", path, errnoOf(err))
	if e.Errno == unix.ESRCH {
		e.kind = ErrGone
	}
	return e
}

// openProc opens a file of the procfs. path is made of a fixed prefix or a
// number and a Rel.
func (p *Proc) openProc(path string, flags uint64) (*File, error) {
	c, ok := linux.NewCString(path)
	if !ok {
		return nil, p.fail("openat2", path, unix.EINVAL)
	}
	raw, ok := p.fd.Acquire()
	if !ok {
		return nil, p.refuse(path, ErrClosed, "")
	}
	defer p.fd.Release()
	n, err := p.openFile(raw, c, flags)
	if err != nil {
		return nil, err
	}
	return newFile(n, PolicyProc, p.tree, "", path), nil
}

// magic opens what the magic link at path in the directory base leads to. It is
// the one lookup without NO_MAGICLINKS. base is resolved under PolicyProc first,
// so the only link that can be followed is the last component, and that one is
// made by the kernel: the procfs is our own and nothing is mounted in it.
//
// path has at most one slash, before the link ("ns/net"): the directory before it
// is opened under PolicyProc, too.
func (p *Proc) magic(base, path string, flags uint64) (*File, error) {
	full := base + "/" + path
	cut := len(full)
	for cut > 0 && full[cut-1] != '/' {
		cut--
	}
	dirPath, ok1 := linux.NewCString(full[:cut-1])
	link, ok2 := linux.NewCString(full[cut:])
	if !ok1 || !ok2 {
		return nil, p.fail("openat2", full, unix.EINVAL)
	}
	raw, ok := p.fd.Acquire()
	if !ok {
		return nil, p.refuse(full, ErrClosed, "")
	}
	defer p.fd.Release()
	dir, errno := p.open(raw, dirPath, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errno != 0 {
		return nil, p.openFailed("openat2", raw, full, errno)
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: openFlags(flags)}
	n, errno := linux.Openat2(dir, link, &how)
	if errno == 0 {
		n, errno = linux.NotStdio(n)
	}
	if errno != 0 {
		return nil, p.fail("openat2", full, errno)
	}
	return newFile(n, PolicyProc, p.tree, "", full), nil
}
