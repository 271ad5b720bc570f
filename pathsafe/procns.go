package pathsafe

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// nsTypes are the namespace files of a process.
var nsTypes = map[string]int{
	"cgroup": unix.CLONE_NEWCGROUP,
	"ipc":    unix.CLONE_NEWIPC,
	"mnt":    unix.CLONE_NEWNS,
	"net":    unix.CLONE_NEWNET,
	"pid":    unix.CLONE_NEWPID,
	"time":   unix.CLONE_NEWTIME,

	"time_for_children": unix.CLONE_NEWTIME,
	"user":              unix.CLONE_NEWUSER,
	"uts":               unix.CLONE_NEWUTS,
}

// Root opens the root directory of a process, as a tree under PolicyRootfs. The
// process is in another mount namespace than the shim. pidfd and pid are as for
// Pid.
func (p *Proc) Root(pidfd, pid int) (*Dir, error) {
	f, err := p.magicPid(pidfd, pid, "root", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	d, err := NewRootfs(f.Disown())
	if err != nil {
		return nil, err
	}
	d.tree = "rootfs of process " + strconv.Itoa(pid)
	return d, nil
}

// NS opens a namespace of a process: name is as in /proc/PID/ns, such as "net".
// The caller owns the descriptor. pidfd and pid are as for Pid.
func (p *Proc) NS(pidfd, pid int, name string) (int, error) {
	nstype, ok := nsTypes[name]
	if !ok {
		return -1, &ParseError{What: "namespace name", Input: name, Why: "unknown"}
	}
	f, err := p.magicPid(pidfd, pid, "ns/"+name, unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	if err := checkNS(f.FD(), f.path(), nstype); err != nil {
		_ = f.Close()
		return -1, err
	}
	return f.Disown(), nil
}

// magicPid follows a magic link of a process and proves afterwards that it was
// that process's.
func (p *Proc) magicPid(pidfd, pid int, link string, flags uint64) (*File, error) {
	if pid <= 0 {
		return nil, p.fail("openat2", link, unix.EINVAL)
	}
	base := strconv.Itoa(pid)
	f, err := p.magic(base, link, flags)
	if alive := p.alive(pidfd, base+"/"+link); alive != nil {
		if f != nil {
			_ = f.Close()
		}
		return nil, alive
	}
	return f, err
}

// checkNS refuses a descriptor that is not a namespace of the type nstype.
func checkNS(raw int, path string, nstype int) error {
	fstype, errno := fsType(raw)
	switch {
	case errno != 0:
		return &OpError{Op: "fstatfs", Path: path, Errno: errno}
	case fstype != fsNS:
		return &OpError{Op: "check", Path: path, kind: ErrType, detail: "not a namespace"}
	}
	got, err := unix.IoctlRetInt(raw, unix.NS_GET_NSTYPE)
	switch {
	case err != nil:
		return &OpError{Op: "ioctl NS_GET_NSTYPE", Path: path, Errno: errnoOf(err)}
	case got != nstype:
		return &OpError{Op: "check", Path: path, kind: ErrType, detail: "namespace of another type"}
	}
	return nil
}
