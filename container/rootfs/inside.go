package rootfs

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// broughtIn reports whether a bind mount's source lies in the root and an earlier
// mount of the list has something to do with it: "The runtime MUST mount entries
// in the listed order" (runtime-spec, config.md, Mounts), so it is what that mount
// has brought, and only the child can see it.
func (r *Rootfs) broughtIn(source string) (from string, ok bool) {
	from, ok = strings.CutPrefix(path.Clean(source)+"/", path.Clean(r.cfg.Path)+"/")
	if !ok {
		return "", false
	}
	from = path.Clean("/" + from)
	for i := range r.mounts {
		d := r.mounts[i].dest
		if from == d || strings.HasPrefix(from, d+"/") || strings.HasPrefix(d, from+"/") {
			return from, true
		}
	}
	return "", false
}

// prepareInside leaves such a mount to the child.
func (r *Rootfs) prepareInside(sm *specs.Mount, m *mount, from string) error {
	if len(m.opts.data) > 0 {
		return fmt.Errorf("option %q: a bind mount has none", optionText(m.opts.data[0]))
	}
	m.from, m.userns = from, -1
	if !m.opts.idmap && len(sm.UIDMappings) == 0 && len(sm.GIDMappings) == 0 {
		return nil
	}
	userns, err := r.userNS(sm.UIDMappings, sm.GIDMappings)
	if err != nil {
		return err
	}
	dup, err := unix.FcntlInt(uintptr(userns), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	m.userns = r.own(dup)
	return nil
}

// bindInside clones the source where it is by now, a directory or a file.
func (s *steps) bindInside(m *mount) {
	file, done := s.b.NewLabel(), s.b.NewLabel()
	src := s.lookup(m.from, unix.O_DIRECTORY, inRoot)
	s.b.OnError(file, unix.ENOTDIR)
	s.cloneTo(src, m, true)
	s.b.OnSuccess(done)
	s.b.Place(file)
	s.cloneTo(s.lookup(m.from, 0, inRoot), m, false)
	s.b.Place(done)
}

func (s *steps) cloneTo(src plan.Slot, m *mount, dir bool) {
	flags := uint(unix.AT_EMPTY_PATH | unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if m.opts.rbind || !m.opts.bind {
		flags |= unix.AT_RECURSIVE
	}
	c := s.b.OpenTree(src.FD(), "", flags).FD()
	set := func(flags uint, a unix.MountAttr) {
		if a != (unix.MountAttr{}) {
			s.b.MountSetattr(c, "", unix.AT_EMPTY_PATH|flags, a)
		}
	}
	set(0, unix.MountAttr{Attr_set: m.opts.attrs.set, Attr_clr: m.opts.attrs.clear})
	set(unix.AT_RECURSIVE, unix.MountAttr{Attr_set: m.opts.recursive.set, Attr_clr: m.opts.recursive.clear})
	if m.opts.propagateRecursively {
		set(unix.AT_RECURSIVE, unix.MountAttr{Propagation: m.opts.propagation})
	} else {
		set(0, unix.MountAttr{Propagation: m.opts.propagation})
	}
	if m.userns >= 0 {
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(m.userns)}
		if m.opts.ridmap {
			set(unix.AT_RECURSIVE, a)
		} else {
			set(0, a)
		}
	}
	s.attach(c, s.target(m.at, dir, inRoot), m.at, inRoot)
}
