package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// setIDMap gives a detached mount the mappings of a user namespace. It must not
// have been attached anywhere.
//
// MOUNT_ATTR_IDMAP: Linux 5.12; which file systems take it differs (ext4, vfat
// 5.12, xfs, erofs 5.19, tmpfs 6.3, overlayfs never).
func setIDMap(fd, userns int, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns)})
	if err != nil {
		return fmt.Errorf("map the ids of the mount: %w", os.NewSyscallError("mount_setattr", err))
	}
	return nil
}

// userNS gives the user namespace for a mount's mappings; the container's own
// for a mount without. The descriptor is the Rootfs's.
func (r *Rootfs) userNS(uid, gid []specs.LinuxIDMapping) (int, error) {
	if len(uid) == 0 && len(gid) == 0 {
		if r.at.UserNS < 0 {
			return -1, errors.New("option idmap: no mappings, and the container has no user namespace")
		}
		return r.at.UserNS, nil
	}
	if len(uid) == 0 || len(gid) == 0 {
		return -1, errors.New("uidMappings and gidMappings: both are needed")
	}
	key := fmt.Sprint(uid, gid)
	if fd, ok := r.userns[key]; ok {
		return fd, nil
	}
	fd, err := r.cfg.NewUserNS(uid, gid)
	if err != nil {
		return -1, err
	}
	if r.userns == nil {
		r.userns = map[string]int{}
	}
	r.userns[key] = fd
	return fd, nil
}

// idmapLayers takes the mappings out of an overlay's options, as snapshotters
// give them: uidmap=CONTAINER:HOST:SIZE, several with commas between.
func idmapLayers(in []param) (params []param, uid, gid []specs.LinuxIDMapping, err error) {
	for _, p := range in {
		switch p.key {
		case "uidmap":
			uid, err = parseMap(p.value)
		case "gidmap":
			gid, err = parseMap(p.value)
		default:
			params = append(params, p)
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("option %s: %w", p.key, err)
		}
	}
	return params, uid, gid, nil
}

func parseMap(text string) (m []specs.LinuxIDMapping, err error) {
	for _, e := range strings.Split(text, ",") {
		f := strings.Split(e, ":")
		if len(f) != 3 {
			return nil, fmt.Errorf("%q: want CONTAINER:HOST:SIZE", e)
		}
		var n [3]uint32
		for i := range f {
			v, err := strconv.ParseUint(f[i], 10, 32)
			if err != nil {
				return nil, err
			}
			n[i] = uint32(v)
		}
		m = append(m, specs.LinuxIDMapping{ContainerID: n[0], HostID: n[1], Size: n[2]})
	}
	return m, nil
}

// newIDMapOverlay makes an overlay whose lower directories are seen through the
// mappings: each becomes a detached mapped bind mount, and is handed over as a
// descriptor. A detached mount ends with its descriptor, so they stay open until
// the overlay has made its own mounts of them.
//
// Layers by descriptor: Linux 6.13, commit a08557d19ef41 ("ovl: specify layers
// via file descriptors"). Detached ones: Linux 6.15 ("fs: allow detached mounts
// in clone_private_mount()"); EINVAL before.
func newIDMapOverlay(params []param, o mountOptions, userns int) (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	var lowers []int
	defer func() {
		for _, fd := range lowers {
			unix.Close(fd)
		}
	}()
	for _, p := range params {
		if p.key != "lowerdir" {
			err = fsconfig(fs, p)
		} else {
			lowers, err = mappedLowers(fs, p.value, userns)
		}
		if err != nil {
			return -1, err
		}
	}
	return finishMount(fs, "overlay", o)
}

// mappedLowers adds each directory of the list. The mounts are the caller's, also
// with an error.
func mappedLowers(fs int, list string, userns int) (lowers []int, err error) {
	for _, dir := range splitLower(list) {
		fd, _, err := bindMount(dir, mountOptions{}, false)
		if err != nil {
			return lowers, fmt.Errorf("lower directory: %w", err)
		}
		lowers = append(lowers, fd)
		if err = setIDMap(fd, userns, false); err == nil {
			err = os.NewSyscallError("fsconfig lowerdir+", unix.FsconfigSetFd(fs, "lowerdir+", fd))
		}
		if err != nil {
			return lowers, fmt.Errorf("lower directory %q with mapped ids: %w%s", dir, err, fsLog(fs))
		}
	}
	return lowers, nil
}
