package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/pathsafe"
)

// ErrUnsupported marks what is not there yet.
var ErrUnsupported = errors.New("not supported")

// newMount makes a detached mount of a new file system.
//
// fsopen(2), fsconfig(2), fsmount(2): Linux 5.2.
func newMount(fstype string, params []param, o mountOptions) (int, error) {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("type %q: %w", fstype, os.NewSyscallError("fsopen", err))
	}
	defer unix.Close(fs)
	for _, p := range params {
		if err := fsconfig(fs, p); err != nil {
			return -1, err
		}
	}
	return finishMount(fs, fstype, o)
}

// fsconfig sets one parameter of a file system context.
func fsconfig(fs int, p param) (err error) {
	if len(p.value) > fsconfigValueMax {
		return fmt.Errorf("option %q: %w", p.key, errNeedsMount)
	}
	if p.value == flagOnly {
		err = unix.FsconfigSetFlag(fs, p.key)
	} else {
		err = unix.FsconfigSetString(fs, p.key, p.value)
	}
	if err != nil {
		return fmt.Errorf("option %q: %w%s", optionText(p), os.NewSyscallError("fsconfig", err), fsLog(fs))
	}
	return nil
}

// finishMount makes the mount of a context that has all its parameters.
func finishMount(fs int, fstype string, o mountOptions) (int, error) {
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create %s: %w%s", fstype, os.NewSyscallError("fsconfig", err), fsLog(fs))
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(o.attrs.set))
	if err != nil {
		return -1, os.NewSyscallError("fsmount", err)
	}
	if err := setAttr(fd, o); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func optionText(p param) string {
	if p.value == flagOnly {
		return p.key
	}
	return p.key + "=" + p.value
}

// fsLog reads what the kernel has to say about a file system context
// (fsopen(2), "message retrieval").
func fsLog(fs int) string {
	var lines []string
	buf := make([]byte, 1024)
	for range 16 {
		n, err := unix.Read(fs, buf)
		if err != nil || n == 0 {
			break
		}
		lines = append(lines, strings.TrimSpace(string(buf[:n])))
	}
	if len(lines) == 0 {
		return ""
	}
	return " (" + strings.Join(lines, "; ") + ")"
}

// setAttr applies what fsmount and open_tree do not take: recursive attributes
// and propagation.
//
// mount_setattr(2): Linux 5.12.
func setAttr(fd int, o mountOptions) error {
	if o.recursive != (attrs{}) {
		if err := pathsafe.SetAttr(fd, o.recursive.set, o.recursive.clear, true); err != nil {
			return err
		}
	}
	if o.propagation == 0 {
		return nil
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if o.propagateRecursively {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(fd, "", flags, &unix.MountAttr{Propagation: o.propagation})
	return os.NewSyscallError("mount_setattr", err)
}

// openTree clones the mount at an O_PATH descriptor, with all below it or
// without. open_tree(2): Linux 5.2.
func openTree(src int, recursive bool) (int, error) {
	flags := uint(unix.AT_EMPTY_PATH | unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(src, "", flags)
	return fd, os.NewSyscallError("open_tree", err)
}

// bindMount makes a detached bind mount. "ro" and its kind change the top mount
// only; "rro" and its kind change all below it. A clone of a shared mount is its
// peer (mount_namespaces(7)): unless the options say so, the clone becomes a
// slave, or what the container mounts would appear on the host.
func bindMount(source string, o mountOptions, recursive bool) (fd int, dir bool, err error) {
	if len(o.data) > 0 {
		return -1, false, fmt.Errorf("option %q: a bind mount has none", optionText(o.data[0]))
	}
	src, id, err := pathsafe.OpenSource(source)
	if err != nil {
		return -1, false, fmt.Errorf("source: %w", err)
	}
	defer unix.Close(src)
	if fd, err = openTree(src, recursive); err != nil {
		return -1, false, fmt.Errorf("source %q: %w", source, err)
	}
	if o.propagation == 0 {
		o.propagation, o.propagateRecursively = unix.MS_SLAVE, true
	}
	if o.attrs != (attrs{}) {
		err = pathsafe.SetAttr(fd, o.attrs.set, o.attrs.clear, false)
	}
	if err == nil {
		err = setAttr(fd, o)
	}
	if err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, id.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// hasLowerdirPlus asks the overlay driver of the running kernel.
var hasLowerdirPlus = sync.OnceValue(func() bool {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fs)
	return unix.FsconfigSetString(fs, "lowerdir+", "/") == nil
})

// procForNamespace makes a detached procfs for another PID namespace.
//
// procfs "pidns=": Linux 6.17, commit fe49652e36bb ("procfs: add \"pidns\" mount
// option").
func procForNamespace(pidns int, params []param, o mountOptions) (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetFd(fs, "pidns", pidns); err != nil {
		return -1, fmt.Errorf("%w: %w", errNoPIDNSOption, err)
	}
	for _, p := range params {
		if err := fsconfig(fs, p); err != nil {
			return -1, err
		}
	}
	return finishMount(fs, "proc", o)
}

var errNoPIDNSOption = errors.New("procfs of this kernel takes no pidns option")

// onlyProc refuses a source that is not procfs: whatever else is at /proc would
// take the place of what programs, and we ourselves, trust there.
func onlyProc(source string) error {
	src, id, err := pathsafe.OpenSource(source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	unix.Close(src)
	if id.FSType != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("source %q: /proc takes a procfs only", source)
	}
	return nil
}

// modeOf gives the permissions of a directory of the image.
func (r *Rootfs) modeOf(p string) (uint32, bool) {
	path, err := pathsafe.ParseInRoot(p)
	if err != nil {
		return 0, false
	}
	id, err := r.dir.Stat(path)
	return id.Mode & 0o7777, err == nil && id.Mode&unix.S_IFMT == unix.S_IFDIR
}
