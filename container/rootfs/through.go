package rootfs

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is what the kernel follows in one path (path_resolution(7)).
const maxLinks = 40

// through follows links of the image that lead to what is not there yet, so that
// a mount's target can be made where they point: an image may have /etc/resolv.conf
// as a link into /run. The result is resolved again inside the root by whoever
// uses it, so what the image says here decides nothing but a name.
func (r *Rootfs) through(dest string) string {
	if r.dir == nil {
		return dest
	}
	open := func(p string, flags uint64) (int, error) {
		return unix.Openat2(r.dir.FD(), relative(p), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: inRoot})
	}
	if fd, err := open(dest, 0); !errors.Is(err, unix.ENOENT) {
		if err == nil {
			unix.Close(fd)
		}
		return dest
	}
	done, links := "/", 0
	rest := strings.Split(strings.Trim(dest, "/"), "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." || name == "." || name == "" {
			done = path.Join(done, name) // "/.." is "/"
			continue
		}
		next := path.Join(done, name)
		fd, err := open(next, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			done = next
			continue
		}
		if err != nil {
			return dest
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", buf)
		unix.Close(fd)
		if err != nil { // EINVAL or ENOENT: no link
			done = next
			continue
		}
		if links++; links > maxLinks {
			return dest
		}
		to := string(buf[:n])
		if path.IsAbs(to) {
			done = "/"
		}
		rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
	}
	return done
}

// isLink reports whether the way to dest leads over a link of the image. It is for
// a good error in time; whoever mounts there follows none.
func (r *Rootfs) isLink(dest string) bool {
	if r.dir == nil {
		return false
	}
	for i := range r.mounts {
		if dest == r.mounts[i].dest || strings.HasPrefix(dest, r.mounts[i].dest+"/") {
			return false // another mount is between the image and us
		}
	}
	fd, err := unix.Openat2(r.dir.FD(), relative(dest), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: strict})
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.ELOOP)
}
