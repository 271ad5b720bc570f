package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// node is a device node to make.
type node struct {
	path     string
	mode     uint32 // type and permissions
	dev      uint64
	uid, gid int
}

// defaultNodes: "In addition to any devices configured with this setting, the
// runtime MUST also supply" - runtime-spec, config-linux.md, Default Devices.
// /dev/console and /dev/ptmx are made elsewhere.
var defaultNodes = []node{
	{"/dev/null", unix.S_IFCHR | 0o666, unix.Mkdev(1, 3), 0, 0},
	{"/dev/zero", unix.S_IFCHR | 0o666, unix.Mkdev(1, 5), 0, 0},
	{"/dev/full", unix.S_IFCHR | 0o666, unix.Mkdev(1, 7), 0, 0},
	{"/dev/random", unix.S_IFCHR | 0o666, unix.Mkdev(1, 8), 0, 0},
	{"/dev/urandom", unix.S_IFCHR | 0o666, unix.Mkdev(1, 9), 0, 0},
	{"/dev/tty", unix.S_IFCHR | 0o666, unix.Mkdev(5, 0), 0, 0},
}

// devLinks are the links of the specification's "Dev symbolic links".
var devLinks = [][2]string{
	{"fd", "/proc/self/fd"},
	{"stdin", "/proc/self/fd/0"},
	{"stdout", "/proc/self/fd/1"},
	{"stderr", "/proc/self/fd/2"},
	{"ptmx", "pts/ptmx"},
}

var deviceTypes = map[string]uint32{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK, "p": unix.S_IFIFO}

// nodes are the default devices and the spec's, which win where both name one.
func (r *Rootfs) nodes() ([]node, error) {
	var out []node
	named := map[string]bool{}
	for i, d := range r.cfg.Devices {
		n, err := specNode(d)
		if err == nil {
			err = r.mapNode(&n)
		}
		if err != nil {
			return nil, fmt.Errorf("linux.devices[%d] (%s): %w", i, d.Path, err)
		}
		// /dev/console is the terminal's and /dev/ptmx the instance's own.
		if n.path == "/dev/ptmx" || n.path == "/dev/console" && r.cfg.Terminal {
			continue
		}
		named[n.path] = true
		out = append(out, n)
	}
	for _, n := range defaultNodes {
		if !named[n.path] {
			if err := r.mapNode(&n); err != nil {
				return nil, err
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// mapNode translates a node's owner to the host's ids.
func (r *Rootfs) mapNode(n *node) error {
	uid, okU := r.cfg.IDs.HostUID(uint32(n.uid))
	gid, okG := r.cfg.IDs.HostGID(uint32(n.gid))
	if !okU || !okG {
		return fmt.Errorf("owner %d:%d: not mapped in the container's user namespace", n.uid, n.gid)
	}
	n.uid, n.gid = int(uid), int(gid)
	return nil
}

func specNode(d specs.LinuxDevice) (node, error) {
	typ, ok := deviceTypes[d.Type]
	if !ok {
		return node{}, fmt.Errorf("type %q: not one of c, u, b, p", d.Type)
	}
	if !path.IsAbs(d.Path) || strings.IndexByte(d.Path, 0) >= 0 {
		return node{}, errors.New("path: not absolute")
	}
	n := node{path: path.Clean(d.Path), mode: typ | 0o666}
	if d.Type != "p" {
		if d.Major < 0 || d.Minor < 0 || d.Major > 1<<32-1 || d.Minor > 1<<32-1 {
			return node{}, errors.New("major, minor: out of range")
		}
		n.dev = unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	}
	if d.FileMode != nil {
		n.mode = typ | uint32(*d.FileMode)&0o7777
	}
	if d.UID != nil {
		n.uid = int(*d.UID)
	}
	if d.GID != nil {
		n.gid = int(*d.GID)
	}
	return n, nil
}

// populateDev fills a detached tmpfs that will become /dev: nothing is made
// through the image's own /dev, whatever it is (CVE-2026-41579).
func (r *Rootfs) populateDev(dev int) error {
	for i := range r.cfg.Mounts {
		d := path.Clean("/" + r.cfg.Mounts[i].Destination)
		if path.Dir(d) == "/dev" && r.cfg.Mounts[i].Type != "bind" {
			if err := unix.Mkdirat(dev, path.Base(d), 0o755); err != nil && err != unix.EEXIST {
				return &os.PathError{Op: "mkdirat", Path: d, Err: err}
			}
		}
	}
	for _, l := range devLinks {
		if err := unix.Symlinkat(l[1], dev, l[0]); err != nil {
			return &os.PathError{Op: "symlinkat", Path: "/dev/" + l[0], Err: err}
		}
	}
	nodes, err := r.nodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if below, ok := strings.CutPrefix(n.path, "/dev/"); ok {
			if err := makeNode(dev, below, n); err != nil {
				return &os.PathError{Op: "mknodat", Path: n.path, Err: err}
			}
		}
	}
	if err := r.ownDev(dev); err != nil {
		return err
	}
	if r.cfg.Terminal {
		// The place that the terminal is mounted on.
		if err := unix.Mknodat(dev, "console", unix.S_IFREG|0o600, 0); err != nil {
			return &os.PathError{Op: "mknodat", Path: "/dev/console", Err: err}
		}
	}
	return nil
}

// ownDev gives what was made in a /dev to the container's root.
func (r *Rootfs) ownDev(dev int) error {
	if !r.cfg.IDs.Mapped() {
		return nil
	}
	uid, okU := r.cfg.IDs.HostUID(0)
	gid, okG := r.cfg.IDs.HostGID(0)
	if !okU || !okG {
		return nil // it has no root
	}
	names := []string{}
	for _, l := range devLinks {
		names = append(names, l[0])
	}
	for i := range r.cfg.Mounts {
		if d := path.Clean("/" + r.cfg.Mounts[i].Destination); path.Dir(d) == "/dev" && r.cfg.Mounts[i].Type != "bind" {
			names = append(names, path.Base(d))
		}
	}
	for _, n := range names {
		if err := unix.Fchownat(dev, n, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &os.PathError{Op: "fchownat", Path: "/dev/" + n, Err: err}
		}
	}
	return nil
}

// ownDevpts gives a devpts instance, whose root belongs to whoever made it, to
// the container's root.
func (r *Rootfs) ownDevpts(fd int) error {
	uid, okU := r.cfg.IDs.HostUID(0)
	gid, okG := r.cfg.IDs.HostGID(0)
	if !r.cfg.IDs.Mapped() || !okU || !okG {
		return nil
	}
	for _, n := range []string{"", "ptmx"} {
		if err := unix.Fchownat(fd, n, int(uid), int(gid), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &os.PathError{Op: "fchownat", Path: "devpts/" + n, Err: err}
		}
	}
	return nil
}

// makeNode makes one node in a tree that nobody else can reach yet. The mode is
// set afterwards because of the umask.
func makeNode(dev int, name string, n node) error {
	for i, c := range name {
		if c == '/' {
			if err := unix.Mkdirat(dev, name[:i], 0o755); err != nil && err != unix.EEXIST {
				return err
			}
		}
	}
	if err := unix.Mknodat(dev, name, n.mode, int(n.dev)); err != nil {
		return err
	}
	if err := unix.Fchmodat(dev, name, n.mode&0o7777, 0); err != nil {
		return err
	}
	if n.uid == 0 && n.gid == 0 {
		return nil
	}
	return unix.Fchownat(dev, name, n.uid, n.gid, unix.AT_SYMLINK_NOFOLLOW)
}

// devicesInRoot makes the devices in the image's own /dev, where the spec
// mounts nothing there. No link is followed; what exists stays as it is.
func (s *steps) devicesInRoot() {
	dev := s.target("/dev", true, strict)
	for _, l := range devLinks {
		s.b.Symlinkat(l[1], dev.FD(), l[0])
		s.b.Tolerate(unix.EEXIST)
	}
	nodes, _ := s.r.nodes() // an error was reported by Prepare
	s.b.Umask(0)
	for _, n := range nodes {
		s.node(n)
	}
}

// otherDevices makes the devices that are not below a /dev made in advance.
func (s *steps) otherDevices() {
	nodes, _ := s.r.nodes()
	for _, n := range nodes {
		if strings.HasPrefix(n.path, "/dev/") {
			continue
		}
		s.b.Umask(0)
		s.node(n)
	}
}

func (s *steps) node(n node) {
	parent := s.target(path.Dir(n.path), true, strict)
	s.b.Mknodat(parent.FD(), path.Base(n.path), n.mode, n.dev)
	s.b.Tolerate(unix.EEXIST)
	if n.uid != 0 || n.gid != 0 {
		s.b.Fchownat(parent.FD(), path.Base(n.path), n.uid, n.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// console mounts the terminal on /dev/console. The replica lies on the
// container's own devpts instance, attached before, so it can be cloned.
func (s *steps) console() {
	c := s.b.OpenTree(plan.Num(0, "stdin"), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	t := s.lookup("/dev/console", 0, strict)
	s.attach(c.FD(), t, "/dev/console", strict)
}

// refuseNodes: in a user namespace of its own a process cannot make devices, so
// they have to be made in advance, in a /dev that we mount.
func (r *Rootfs) refuseNodes() error {
	if !r.tmpDev && !r.hasDev {
		return fmt.Errorf("a user namespace without a mount on /dev: %w", ErrUnsupported)
	}
	for i, d := range r.cfg.Devices {
		if !strings.HasPrefix(path.Clean(d.Path), "/dev/") && d.Type != "p" {
			return fmt.Errorf("linux.devices[%d] (%s): outside /dev with a user namespace: %w", i, d.Path, ErrUnsupported)
		}
	}
	return nil
}
