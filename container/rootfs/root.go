package rootfs

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// layer is a further mount of the root file system, below the first.
type layer struct {
	fd     int
	target string
	dir    bool
}

// prepareRoot makes the root as a detached mount, so that it can be read before
// the container exists.
func (r *Rootfs) prepareRoot() error {
	if len(r.cfg.Layers) == 0 {
		fd, _, err := bindMount(r.cfg.Path, mountOptions{}, true)
		if err != nil {
			return fmt.Errorf("root.path: %w", err)
		}
		return r.adoptRoot(fd)
	}
	for i := range r.cfg.Layers {
		if err := r.prepareLayer(i); err != nil {
			return fmt.Errorf("rootfs[%d] (%s): %w", i, r.cfg.Layers[i].Type, err)
		}
	}
	return nil
}

func (r *Rootfs) adoptRoot(fd int) error {
	r.root = r.own(fd)
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	r.dir, err = pathsafe.NewRootfs(dup)
	return err
}

func (r *Rootfs) prepareLayer(i int) error {
	l := r.cfg.Layers[i]
	if i == 0 && l.Target != "" && path.Clean("/"+l.Target) != "/" {
		return fmt.Errorf("target %q: the first mount is the root itself", l.Target)
	}
	o, err := parseOptions(l.Options)
	if err != nil {
		return err
	}
	if strings.HasPrefix(l.Type, "fuse") {
		return fmt.Errorf("type %q: %w (needs a mount helper)", l.Type, ErrUnsupported)
	}
	fd, dir, err := r.makeLayer(l, o)
	if errors.Is(err, errNeedsMount) && i == 0 && len(r.cfg.Layers) == 1 {
		return nil // root stays -1: mountLayers makes it in the child
	}
	if err != nil {
		return err
	}
	if i == 0 {
		return r.adoptRoot(fd)
	}
	r.layers = append(r.layers, layer{r.own(fd), l.Target, dir})
	return nil
}

func (r *Rootfs) makeLayer(l Layer, o mountOptions) (fd int, dir bool, err error) {
	if o.bind || l.Type == "bind" || l.Type == "rbind" {
		return bindMount(l.Source, o, o.rbind || l.Type == "rbind")
	}
	params, uid, gid, err := idmapLayers(withSource(l.Source, o.data))
	if err != nil {
		return -1, false, err
	}
	if len(uid) > 0 || len(gid) > 0 {
		if l.Type != "overlay" {
			return -1, false, fmt.Errorf("options uidmap, gidmap: %w for type %q", ErrUnsupported, l.Type)
		}
		userns, err := r.userNS(uid, gid)
		if err != nil {
			return -1, false, err
		}
		fd, err = newIDMapOverlay(params, o, userns)
		return fd, true, err
	}
	if l.Type == "overlay" {
		if params, err = overlayParams(params); err != nil {
			return -1, false, err
		}
	}
	fd, err = newMount(l.Type, params, o)
	return fd, true, err
}

// errNeedsMount says that only mount(2) takes these options: a value of
// fsconfig(2) ends at 255 bytes, a page of options of mount(2) does not.
var errNeedsMount = errors.New("an option is longer than fsconfig takes")

const fsconfigValueMax = 255

// overlayParams gives each lower directory a parameter of its own where the
// list is too long for one.
//
// "lowerdir+": Linux 6.7, commit 24e16e385f22 ("ovl: add support for appending
// lowerdirs one by one"). Before it, mount(2) is the way.
func overlayParams(in []param) ([]param, error) {
	var out []param
	for _, p := range in {
		if p.key != "lowerdir" || len(p.value) <= fsconfigValueMax {
			if len(p.value) > fsconfigValueMax {
				return nil, errNeedsMount
			}
			out = append(out, p)
			continue
		}
		if !hasLowerdirPlus() {
			return nil, errNeedsMount
		}
		for _, dir := range splitLower(p.value) {
			if dir == "" || len(dir) > fsconfigValueMax {
				return nil, errNeedsMount // "::" introduces data-only layers
			}
			out = append(out, param{"lowerdir+", dir})
		}
	}
	return out, nil
}

// splitLower splits a lowerdir list at colons; a backslash takes the special
// meaning from the character behind it (overlayfs.rst).
func splitLower(list string) []string {
	var dirs []string
	var dir strings.Builder
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && i+1 < len(list):
			i++
			dir.WriteByte(list[i])
		case c == ':':
			dirs = append(dirs, dir.String())
			dir.Reset()
		default:
			dir.WriteByte(c)
		}
	}
	return append(dirs, dir.String())
}

// mountLayers is the way of kernels without "lowerdir+": mount(2), in the
// container's own mount namespace.
func (s *steps) mountLayers() {
	l := s.r.cfg.Layers[0]
	o, _ := parseOptions(l.Options) // parsed before, in prepareLayer
	s.b.Mount(l.Source, s.r.cfg.Path, l.Type, mountFlags(o.attrs.set), joinData(o.data))
	s.root = s.b.Openat2(plan.Cwd, s.r.cfg.Path, pathHow(unix.O_DIRECTORY, unix.RESOLVE_NO_MAGICLINKS)).FD()
}

// mountFlags gives the mount(2) flags for attributes of mount_setattr(2).
func mountFlags(attr uint64) (flags uintptr) {
	for _, f := range []struct {
		attr uint64
		flag uintptr
	}{
		{unix.MOUNT_ATTR_RDONLY, unix.MS_RDONLY},
		{unix.MOUNT_ATTR_NOSUID, unix.MS_NOSUID},
		{unix.MOUNT_ATTR_NODEV, unix.MS_NODEV},
		{unix.MOUNT_ATTR_NOEXEC, unix.MS_NOEXEC},
		{unix.MOUNT_ATTR_NOATIME, unix.MS_NOATIME},
		{unix.MOUNT_ATTR_STRICTATIME, unix.MS_STRICTATIME},
		{unix.MOUNT_ATTR_NODIRATIME, unix.MS_NODIRATIME},
		{unix.MOUNT_ATTR_NOSYMFOLLOW, unix.MS_NOSYMFOLLOW},
	} {
		if attr&f.attr != 0 {
			flags |= f.flag
		}
	}
	return flags
}

func joinData(params []param) string {
	var opts []string
	for _, p := range params {
		if p.value == flagOnly {
			opts = append(opts, p.key)
		} else {
			opts = append(opts, p.key+"="+p.value)
		}
	}
	return strings.Join(opts, ",")
}

func has(params []param, key string) bool {
	for _, p := range params {
		if p.key == key {
			return true
		}
	}
	return false
}
