package pathsafe

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/fd"
	"github.com/ibex-run/ibex/internal/linux"
)

// Policy says how paths below a Dir are resolved. It is fixed when the Dir is
// made, and what is opened through a Dir has the same one.
type Policy uint8

// The policies. The flags are those of openat2(2).
const (
	// PolicyKernfs is for cgroup v1 and v2 below one hierarchy's mount:
	// BENEATH, NO_MAGICLINKS, NO_XDEV, NO_SYMLINKS. There are no links and no
	// mounts in a cgroup tree, so whatever needs one is an attack.
	PolicyKernfs Policy = iota
	// PolicyProc is for a procfs of our own: BENEATH, NO_MAGICLINKS, NO_XDEV.
	// Links must work: thread-self is an ordinary one.
	PolicyProc
	// PolicyState is for directories that ibex owns: as PolicyKernfs, and every
	// directory used must belong to root and be writable by root alone.
	PolicyState
	// PolicyRootfs is for a container's root: IN_ROOT, NO_MAGICLINKS. Links are
	// followed as a process of the container would follow them.
	PolicyRootfs
	// PolicyRootfsStrict is for places in a root that must be what they seem
	// (proc, sys, dev, cgroup, masked paths): BENEATH, NO_MAGICLINKS,
	// NO_SYMLINKS.
	PolicyRootfsStrict
)

// String names the policy, for messages.
func (p Policy) String() string {
	switch p {
	case PolicyKernfs:
		return "cgroup"
	case PolicyProc:
		return "procfs"
	case PolicyState:
		return "state"
	case PolicyRootfs:
		return "rootfs"
	case PolicyRootfsStrict:
		return "rootfs without links"
	}
	return "unknown policy"
}

// resolve returns the RESOLVE flags. NO_MAGICLINKS is in each: BENEATH and
// IN_ROOT block magic links today, but openat2(2) reserves the right to change
// that.
func (p Policy) resolve() uint64 {
	switch p {
	case PolicyProc:
		return unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	case PolicyRootfs:
		return unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	case PolicyRootfsStrict:
		return unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS
	default: // kernfs and state; an unknown policy gets the strictest
		return unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS
	}
}

// rootfs reports whether trees of this policy are the container's.
func (p Policy) rootfs() bool { return p == PolicyRootfs || p == PolicyRootfsStrict }

// Dir is a directory held open (O_PATH), and the tree below it. Its methods may
// be called from several goroutines, also during Close. There is no finalizer.
type Dir struct {
	fd     fd.FD
	id     ID
	policy Policy
	host   bool   // opened in the shim's mount namespace: never a mount target
	tree   string // for messages only
	at     string // for messages only; relative to tree
}

// newDir takes ownership of raw.
func newDir(raw int, id ID, policy Policy, tree, at string) *Dir {
	d := &Dir{id: id, policy: policy, tree: tree, at: at}
	d.fd.Init(raw)
	return d
}

// ID returns the identity that was found when the Dir was opened.
func (d *Dir) ID() ID { return d.id }

// Policy returns the policy of the tree.
func (d *Dir) Policy() Policy { return d.policy }

// FD returns the descriptor, which stays d's: it is valid until Close, and -1
// afterwards. It is O_PATH and close-on-exec.
func (d *Dir) FD() int { return d.fd.Int() }

// Close closes the descriptor once the calls under way have ended. Closing
// again does nothing.
func (d *Dir) Close() error { return d.fd.Close() }

// String describes the directory, for messages.
func (d *Dir) String() string {
	if d.at == "" {
		return d.tree
	}
	return d.tree + " at " + d.at
}

// fail makes the error of a system call on path below d.
func (d *Dir) fail(op, path string, errno unix.Errno) *OpError {
	return &OpError{Op: op, Tree: d.tree, Path: d.join(path), Errno: errno}
}

// refuse makes the error of a check of our own.
func (d *Dir) refuse(path string, kind error, detail string) *OpError {
	return &OpError{Op: "check", Tree: d.tree, Path: d.join(path), kind: kind, detail: detail}
}

// join makes the path of a message. It is bounded: a tenant can nest cgroups
// deeper than any path is long.
func (d *Dir) join(path string) string {
	switch {
	case len(d.at) > maxPath:
		return d.at
	case d.at == "":
		return path
	case path == "" || path == ".":
		return d.at
	}
	return d.at + "/" + path
}

// openFailed turns an errno of a path lookup into the error for it. raw is d's
// descriptor, held by the caller.
func (d *Dir) openFailed(op string, raw int, path string, errno unix.Errno) error {
	e := d.fail(op, path, errno)
	switch errno {
	case unix.EXDEV, unix.ELOOP:
		e.kind = ErrEscape
	case unix.EAGAIN:
		if d.policy.rootfs() {
			e.kind = ErrRaced
		}
	case unix.ENOTDIR, unix.EISDIR, unix.ENXIO:
		e.kind = ErrType
	case unix.ENODEV:
		if d.policy == PolicyKernfs {
			e.kind = ErrGone
		}
	case unix.ENOENT:
		if d.policy == PolicyKernfs && cgroupIsDead(raw) {
			e.kind = ErrGone
		}
	}
	return e
}

var cgroupProcs = MustName("cgroup.procs")

// cgroupIsDead tells a removed cgroup from a missing file. Every cgroup of both
// versions has a cgroup.procs, and none can be found below a removed one, also
// not after another cgroup of that name was made. The link count does not tell:
// kernfs leaves it at 2 after rmdir (observed on 6.18).
func cgroupIsDead(raw int) bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: PolicyKernfs.resolve()}
	probe, errno := linux.Openat2(raw, cgroupProcs.c, &how)
	if errno == 0 {
		_ = unix.Close(probe)
	}
	return errno == unix.ENOENT
}

// Flags of every open. O_NONBLOCK keeps a FIFO or a leased file from blocking
// the shim, O_NOCTTY keeps a terminal from becoming its controlling one.
// openat2 refuses both together with O_PATH, where they mean nothing.
func openFlags(flags uint64) uint64 {
	flags |= unix.O_CLOEXEC
	if flags&(unix.O_PATH|unix.O_DIRECTORY) == 0 {
		flags |= unix.O_NONBLOCK
	}
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NOCTTY
	}
	return flags
}

// Retries of a lookup in a root filesystem. Such a lookup may walk "..", and
// then fails with EAGAIN when anything on the host was renamed or mounted
// meanwhile. An attacker can keep that up, so there is a limit of time, too.
const (
	maxRetries = 128
	maxRaced   = 2 * time.Millisecond
)

// retry decides whether a failed lookup is tried again.
type retry struct {
	policy Policy
	tries  int
	start  time.Time
}

// again reports whether to try again after errno. now is only asked after a
// failure. Elsewhere than in a root filesystem EAGAIN cannot come from the
// lookup, only from a lease on the file, whose holder could keep us here.
func (r *retry) again(errno unix.Errno, now func() time.Time) bool {
	if errno != unix.EAGAIN || !r.policy.rootfs() {
		return false
	}
	if r.tries == 0 {
		r.start = now()
	}
	r.tries++
	return r.tries <= maxRetries && now().Sub(r.start) < maxRaced
}

// open is the one place where openat2 is called on a tree. raw is d's
// descriptor, held by the caller. The descriptor returned is above 2.
func (d *Dir) open(raw int, c linux.CString, flags uint64, mode uint32) (int, unix.Errno) {
	if d.policy == PolicyKernfs || d.policy == PolicyProc {
		if flags&(unix.O_CREAT|unix.O_TRUNC) != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE {
			return -1, unix.EINVAL
		}
	}
	how := unix.OpenHow{Flags: openFlags(flags), Mode: uint64(mode), Resolve: d.policy.resolve()}
	r := retry{policy: d.policy}
	for {
		n, errno := linux.Openat2(raw, c, &how)
		if errno == 0 {
			return linux.NotStdio(n)
		}
		if !r.again(errno, time.Now) {
			return -1, errno
		}
	}
}

// Sub opens a directory below d, with d's policy.
//
// On PolicyState both d and the directory must belong to root and be writable
// by no one else, or the error is ErrType.
func (d *Dir) Sub(r Rel) (*Dir, error) {
	raw, ok := d.fd.Acquire()
	if !ok {
		return nil, d.refuse(r.String(), ErrClosed, "")
	}
	defer d.fd.Release()
	if err := d.checkOwn(raw); err != nil {
		return nil, err
	}
	return d.sub(raw, r.c)
}

// sub opens the directory at c below raw, which is d's.
func (d *Dir) sub(raw int, c linux.CString) (*Dir, error) {
	n, errno := d.open(raw, c, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errno != 0 {
		return nil, d.openFailed("openat2", raw, c.String(), errno)
	}
	var st unix.Statx_t
	id, errno := fstatx(n, &st)
	if errno == 0 && d.policy.rootfs() {
		id.FSType, errno = fsType(n) // mounts may be crossed here
	} else {
		id.FSType = d.id.FSType // NO_XDEV: one mount, so one filesystem
	}
	if errno != 0 {
		_ = unix.Close(n)
		return nil, d.fail("statx", c.String(), errno)
	}
	if d.policy == PolicyState {
		if why := notOurs(&st); why != "" {
			_ = unix.Close(n)
			return nil, d.refuse(c.String(), ErrType, why)
		}
	}
	s := newDir(n, id, d.policy, d.tree, d.join(c.String()))
	s.host = d.host
	return s, nil
}

// checkOwn refuses to go on in a state directory that others may change. It
// costs one statx, on PolicyState only.
func (d *Dir) checkOwn(raw int) error {
	if d.policy != PolicyState {
		return nil
	}
	var st unix.Statx_t
	if _, errno := fstatx(raw, &st); errno != 0 {
		return d.fail("statx", ".", errno)
	}
	if why := notOurs(&st); why != "" {
		return d.refuse(".", ErrType, why)
	}
	return nil
}

// notOurs says why a file of st may be changed by others than root, or "".
func notOurs(st *unix.Statx_t) string {
	switch {
	case st.Uid != 0:
		return "owner is not root"
	case st.Mode&0o022 != 0:
		return "writable by group or others"
	}
	return ""
}
