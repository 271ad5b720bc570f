package rootfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// prepareCgroup decides what /sys/fs/cgroup shows. With a cgroup namespace of
// its own and the unified hierarchy, the child mounts the hierarchy itself and
// sees its cgroup as the root. Otherwise the container's own directories are
// bound there: nothing above them can be reached.
func (r *Rootfs) prepareCgroup(m *mount) error {
	c := r.at.Cgroup
	if c.V2 {
		m.fstype, m.params = "cgroup2", withSource("cgroup2", nil)
		if c.Private {
			return nil
		}
		if len(c.Dirs) == 0 {
			return fmt.Errorf("type cgroup: the container has no cgroup to show")
		}
		return r.bindCgroup(m, c.Dirs[0].FD)
	}
	m.fstype = "cgroup"
	ro := m.opts.attrs.set&unix.MOUNT_ATTR_RDONLY != 0
	top := m.opts
	top.attrs.set &^= unix.MOUNT_ATTR_RDONLY
	fd, err := newMount("tmpfs", []param{{"source", "tmpfs"}, {"mode", "755"}}, top)
	if err != nil {
		return err
	}
	m.fd, m.seal = fd, ro // owned by the caller, prepareNew
	for _, d := range c.Dirs {
		if err := unix.Mkdirat(fd, d.Name, 0o755); err != nil {
			return &os.PathError{Op: "mkdirat", Path: d.Name, Err: err}
		}
		for _, l := range d.Links {
			if err := unix.Symlinkat(d.Name, fd, l); err != nil {
				return &os.PathError{Op: "symlinkat", Path: l, Err: err}
			}
		}
		sub, err := cloneCgroup(d.FD, m.opts)
		if err != nil {
			return err
		}
		m.below = append(m.below, submount{d.Name, r.own(sub)})
	}
	return nil
}

func (r *Rootfs) bindCgroup(m *mount, dir int) error {
	fd, err := cloneCgroup(dir, m.opts)
	if err == nil {
		m.fd = fd
	}
	return err
}

func cloneCgroup(dir int, o mountOptions) (int, error) {
	fd, err := openTree(dir, false)
	if err != nil {
		return -1, err
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{
		Attr_set: o.attrs.set, Attr_clr: o.attrs.clear, Propagation: unix.MS_PRIVATE,
	})
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return fd, nil
}
