package rootfs

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// mount is one entry of the spec's list, prepared.
type mount struct {
	dest string
	at   string // dest, with dangling links of the image followed
	dir  bool
	fd   int // the detached mount; -1: the child makes it
	// For the child:
	from   string // a source inside the root, see inside.go
	userns int    // of its id mapping
	fstype string
	params []param
	opts   mountOptions
	below  []submount // v1 cgroup hierarchies below the tmpfs
	// sealLast: a read-only /dev takes devices and mount points until all is there.
	sealLast bool
	parked   bool // a copy goes to the container, see park
	seal     bool // set the tmpfs read-only once it is filled
}

type submount struct {
	name string
	fd   int
}

// pseudo are the kernel's own file systems. They go to real directories only.
var pseudo = []string{"proc", "sysfs", "mqueue", "devpts", "cgroup", "cgroup2"}

func (m *mount) resolve() uint64 {
	if slices.Contains(pseudo, m.fstype) {
		return strict
	}
	return inRoot
}

func (r *Rootfs) prepareMount(i int) error {
	sm := &r.cfg.Mounts[i]
	if sm.Destination == "" || strings.IndexByte(sm.Destination, 0) >= 0 {
		return errors.New("destination: empty, or with a NUL byte")
	}
	o, err := parseOptions(sm.Options)
	if err != nil {
		return err
	}
	if err := refuse(sm, o); err != nil {
		return err
	}
	m := mount{dest: path.Clean("/" + sm.Destination), at: path.Clean("/" + sm.Destination), dir: true, fd: -1, fstype: sm.Type, opts: o, params: withSource(sm.Source, o.data)}
	if m.dest == "/" {
		return errors.New("destination: the root itself cannot be mounted over")
	}
	if m.dest == "/dev" {
		r.hasDev = true
	}
	if o.bind || sm.Type == "bind" {
		m.fstype = "bind"
		err = r.prepareBind(sm, &m)
	} else {
		err = r.prepareNew(sm, &m)
	}
	if err != nil {
		return err
	}
	if m.resolve() == inRoot {
		m.at = r.through(m.dest)
	} else if r.isLink(m.dest) {
		return fmt.Errorf("type %s: must be mounted on ordinary directory, and a link is on the way: %w", m.fstype, unix.ELOOP)
	}
	r.mounts = append(r.mounts, m)
	return nil
}

func refuse(sm *specs.Mount, o mountOptions) error {
	switch {
	case (o.idmap || len(sm.UIDMappings) > 0 || len(sm.GIDMappings) > 0) && !o.bind && sm.Type != "bind":
		return fmt.Errorf("uidMappings, gidMappings, idmap: %w for type %q", ErrUnsupported, sm.Type)
	case o.tmpcopyup && (sm.Type != "tmpfs" || o.bind || path.Clean("/"+sm.Destination) == "/dev"):
		return errors.New("option tmpcopyup: for a tmpfs other than /dev only")
	}
	return nil
}

// prepareBind clones the source. Without a propagation of its own the mount
// gets that of the tree it joins, as with mount(8) in a namespace made slave.
func (r *Rootfs) prepareBind(sm *specs.Mount, m *mount) error {
	if sm.Source == "" {
		return errors.New("source: empty")
	}
	src := sm.Source
	if !filepath.IsAbs(src) {
		src = filepath.Join(r.cfg.Bundle, src)
	}
	if m.opts.propagation == 0 {
		m.opts.propagation, m.opts.propagateRecursively = unix.MS_SLAVE, true
		if p := propagation(r.cfg.Propagation); p == unix.MS_PRIVATE || p == unix.MS_SHARED {
			m.opts.propagation = p
		}
	}
	if m.dest == "/proc" {
		if err := onlyProc(src); err != nil {
			return err
		}
	}
	m.opts.implyClear(r.cfg.IDs.Mapped())
	if from, ok := r.broughtIn(src); ok {
		return r.prepareInside(sm, m, from)
	}
	fd, dir, err := bindMount(src, m.opts, m.opts.rbind || !m.opts.bind)
	if err != nil {
		return err
	}
	m.fd, m.dir = r.own(fd), dir
	if !m.opts.idmap && len(sm.UIDMappings) == 0 && len(sm.GIDMappings) == 0 {
		return nil
	}
	userns, err := r.userNS(sm.UIDMappings, sm.GIDMappings)
	if err != nil {
		return err
	}
	return setIDMap(fd, userns, m.opts.ridmap)
}

// prepareNew makes the mount in advance where that is possible, or leaves it to
// the child: procfs, sysfs, mqueue and the cgroup file systems belong to the
// namespaces of whoever makes them.
func (r *Rootfs) prepareNew(sm *specs.Mount, m *mount) (err error) {
	switch sm.Type {
	case "":
		return errors.New("type: empty, and no bind option")
	case "mqueue":
	case "sysfs":
		if r.cfg.HostNetwork {
			m.fd, _, err = bindMount("/sys", mountOptions{attrs: m.opts.attrs, recursive: m.opts.attrs, propagation: unix.MS_SLAVE, propagateRecursively: true}, true)
		}
	case "proc":
		if r.at.PIDNamespace < 0 {
			break
		}
		m.fd, err = procForNamespace(r.at.PIDNamespace, m.params, m.opts)
		if errors.Is(err, errNoPIDNSOption) {
			r.inside, m.fd = true, -1
			return nil
		}
	case "cgroup", "cgroup2":
		err = r.prepareCgroup(m)
	case "tmpfs":
		r.tmpfsMode(m)
		if err = r.mapOwner(m, true); err != nil {
			return err
		}
		err = r.newTmpfs(m)
		if err == nil && m.dest == "/dev" {
			r.tmpDev = true
			err = r.populateDev(m.fd)
		}
	case "devpts":
		if err = r.mapOwner(m, false); err != nil {
			return err
		}
		m.fd, err = newMount("devpts", m.params, m.opts)
		if err == nil {
			err = r.ownDevpts(m.fd)
		}
		if err == nil && m.dest == "/dev/pts" {
			r.devpts = m.fd
		}
	default:
		if m.opts.attrs.set&unix.MOUNT_ATTR_RDONLY != 0 {
			m.params = append(m.params, param{"ro", flagOnly})
		}
		m.fd, err = newMount(sm.Type, m.params, m.opts)
	}
	if m.fd >= 0 {
		r.own(m.fd)
	}
	return err
}

// newTmpfs makes a tmpfs, read-only once it is filled.
func (r *Rootfs) newTmpfs(m *mount) (err error) {
	o := m.opts
	m.sealLast = m.dest == "/dev" && (o.attrs.set|o.recursive.set)&unix.MOUNT_ATTR_RDONLY != 0
	if o.tmpcopyup || m.sealLast {
		o.attrs.set &^= unix.MOUNT_ATTR_RDONLY
		o.recursive.set &^= unix.MOUNT_ATTR_RDONLY
	}
	if m.fd, err = newMount("tmpfs", m.params, o); err != nil || !o.tmpcopyup {
		return err
	}
	if err = r.copyUp(m); err == nil {
		err = pathsafe.SetAttr(m.fd, (m.opts.attrs.set|m.opts.recursive.set)&unix.MOUNT_ATTR_RDONLY, 0, false)
	}
	if err != nil {
		unix.Close(m.fd)
		m.fd = -1
	}
	return err
}

// withSource puts the source in front: the device of a file system that has
// one, a name in /proc/mounts for the others.
func withSource(source string, params []param) []param {
	if source == "" {
		return params
	}
	return append([]param{{"source", source}}, params...)
}

// tmpfsMode gives a tmpfs without a mode that of the directory it covers, as
// far as that can be seen in the image.
func (r *Rootfs) tmpfsMode(m *mount) {
	if has(m.params, "mode") || r.dir == nil {
		return
	}
	for i := range r.mounts {
		if r.mounts[i].dest == m.dest || strings.HasPrefix(m.dest, r.mounts[i].dest+"/") {
			return // another mount is between the image and us
		}
	}
	if mode, ok := r.modeOf(m.dest); ok {
		m.params = append(slices.Clone(m.params), param{"mode", fmt.Sprintf("%04o", mode)})
	}
}

// mapOwner translates the ids in a file system's options, which are the
// container's, to the host's, since it is made here; and gives it to the
// container's root where it does not say.
func (r *Rootfs) mapOwner(m *mount, always bool) error {
	if !r.cfg.IDs.Mapped() {
		return nil
	}
	out := slices.Clone(m.params)
	for _, o := range []struct {
		key  string
		host func(uint32) (uint32, bool)
	}{{"uid", r.cfg.IDs.HostUID}, {"gid", r.cfg.IDs.HostGID}} {
		i := slices.IndexFunc(out, func(p param) bool { return p.key == o.key })
		if i < 0 {
			if !always {
				continue
			}
			i, out = len(out), append(out, param{o.key, "0"})
		}
		id, err := strconv.ParseUint(out[i].value, 10, 32)
		host, ok := o.host(uint32(id))
		if err != nil || !ok {
			return fmt.Errorf("option %s: not mapped in the container's user namespace", optionText(out[i]))
		}
		out[i].value = strconv.FormatUint(uint64(host), 10)
	}
	m.params = out
	return nil
}

// mount adds the steps for one mount.
func (s *steps) mount(m *mount) {
	if m.from != "" {
		s.bindInside(m)
		return
	}
	target := s.target(m.at, m.dir, m.resolve())
	if m.fd >= 0 {
		fd := plan.Num(m.fd, "mount:"+m.dest)
		if m.parked {
			fd = s.copyOf(m, fd)
		}
		s.attach(fd, target, m.at, m.resolve())
		if m.sealLast {
			s.sealed = append(s.sealed, fd)
		}
		for _, sub := range m.below {
			t := s.b.Openat2(fd, sub.name, pathHow(unix.O_DIRECTORY, strict))
			s.move(plan.Num(sub.fd, "cgroup:"+sub.name), t)
		}
		if m.seal {
			s.b.MountSetattr(fd, "", unix.AT_EMPTY_PATH, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}
		return
	}
	s.attach(s.newMount(m.fstype, m.params, m.opts), target, m.at, m.resolve())
}

// newMount makes a file system in the child.
func (s *steps) newMount(fstype string, params []param, o mountOptions) plan.FD {
	fs := s.b.Fsopen(fstype, unix.FSOPEN_CLOEXEC).FD()
	for _, p := range params {
		if p.value == flagOnly {
			s.b.FsconfigFlag(fs, p.key)
		} else {
			s.b.FsconfigString(fs, p.key, p.value)
		}
	}
	s.b.FsconfigCreate(fs)
	fd := s.b.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(o.attrs.set)).FD()
	s.b.Close(fs)
	if o.propagation != 0 {
		s.b.MountSetattr(fd, "", unix.AT_EMPTY_PATH, unix.MountAttr{Propagation: o.propagation})
	}
	return fd
}
