package pathsafe

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
	"github.com/ibex-run/ibex/internal/probe"
)

// kernelFloor is the first kernel that has all of the required features, and
// cgroup.kill.
const kernelFloor = "5.14"

// The features without which nothing works.
var required = []*probe.Feature{
	probe.New("openat2 with all RESOLVE flags", 5, 6, tryOpenat2),
	probe.New("fsopen, fsmount and a procfs with subset=pid and hidepid=ptraceable", 5, 8, tryProc),
	probe.New("move_mount", 5, 2, tryMoveMount),
	probe.New("mount_setattr", 5, 12, tryMountSetattr),
	probe.New("close_range", 5, 9, tryCloseRange),
	probe.New("clone3", 5, 3, tryClone3),
	probe.New("pidfd_open and pidfd_send_signal", 5, 3, tryPidfd),
	probe.New("statx with mount ids", 5, 8, tryMountID),
}

var uniqueMountID = probe.New("statx with unique mount ids", 6, 8, func() error {
	return tryStatx(unix.STATX_MNT_ID_UNIQUE)
})

// KernelFloor is the first mainline kernel that has everything that is required.
const KernelFloor = kernelFloor

// Required lists the features without which Probe fails, Optional those that make
// something better: for who wants to know each of them.
func Required() []*probe.Feature { return required }

// Optional: see Required.
func Optional() []*probe.Feature { return []*probe.Feature{uniqueMountID} }

// Features says what the kernel has beyond the floor.
type Features struct {
	Kernel        string // release, as uname(2) gives it
	UniqueMountID bool   // mount ids are never reused (Linux 6.8)
}

// UnsupportedError lists everything that is missing. It is ErrUnsupported.
type UnsupportedError struct {
	Kernel  string
	Missing []error // *probe.MissingError
}

// Error is one line that a person can act on.
func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		names[i] = m.Error()
	}
	return "kernel lacks " + strings.Join(names, ", ") + ": need Linux >= " + kernelFloor +
		" without a system call filter, have " + e.Kernel
}

// Is makes it an ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// Unwrap gives the missing features.
func (e *UnsupportedError) Unwrap() []error { return e.Missing }

// Probe tries everything that this package and the plans need. It returns
// *UnsupportedError if something is missing: there is no degraded mode, so the
// caller ends there. Call it first. It must run with the shim's privileges.
func Probe() (Features, error) {
	f := Features{Kernel: kernelRelease()}
	var missing []error
	for _, r := range required {
		err := r.Check()
		var m *probe.MissingError
		if errors.As(err, &m) {
			missing = append(missing, m)
		} else if err != nil {
			return f, err
		}
	}
	if missing != nil {
		return f, &UnsupportedError{Kernel: f.Kernel, Missing: missing}
	}
	f.UniqueMountID = uniqueMountID.Have()
	return f, nil
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// as returns errno as an error, without making a non-nil one of 0.
func as(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// tryOpenat2 uses each set of flags that a policy has, on a path that exists.
func tryOpenat2() error {
	c, _ := linux.NewCString("/")
	root, errno := openAbs(c, unix.RESOLVE_NO_SYMLINKS)
	if errno != 0 {
		return errno
	}
	defer unix.Close(root)
	for _, p := range []Policy{PolicyKernfs, PolicyProc, PolicyState, PolicyRootfs, PolicyRootfsStrict} {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: p.resolve()}
		n, errno := linux.Openat2(root, here, &how)
		if errno != 0 {
			return errno
		}
		_ = unix.Close(n)
	}
	return nil
}

func tryProc() error {
	p, err := OpenProc(true)
	if err != nil {
		return err
	}
	return p.Close()
}

// tryMoveMount moves nothing: EBADF or ENOENT say that the call is there.
func tryMoveMount() error {
	err := unix.MoveMount(-1, "", -1, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err == unix.EBADF || err == unix.ENOENT {
		return nil
	}
	return err
}

func tryMountSetattr() error {
	err := unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == unix.EBADF {
		return nil
	}
	return err
}

// tryCloseRange closes a descriptor that cannot be open.
func tryCloseRange() error {
	return unix.CloseRange(1<<31-1, 1<<31-1, 0)
}

// tryClone3 gives a structure of no size, which is EINVAL where the call exists.
func tryClone3() error {
	_, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0)
	if errno == unix.EINVAL {
		return nil
	}
	return as(errno)
}

func tryPidfd() error {
	n, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return err
	}
	defer unix.Close(n)
	return linux.PidfdAlive(n)
}

func tryMountID() error { return tryStatx(unix.STATX_MNT_ID) }

func tryStatx(bit uint32) error {
	c, _ := linux.NewCString("/")
	root, errno := openAbs(c, unix.RESOLVE_NO_SYMLINKS)
	if errno != 0 {
		return errno
	}
	defer unix.Close(root)
	var st unix.Statx_t
	if errno := linux.Fstatx(root, bit, &st); errno != 0 {
		return errno
	}
	if st.Mask&bit == 0 {
		return unix.EOPNOTSUPP
	}
	return nil
}
