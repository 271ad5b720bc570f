package rootfs

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// attrs are what mount options ask of a mount, as mount_setattr(2) takes it: a
// delta, never a full set, since bits that are locked in a less privileged
// mount namespace may be added to and not cleared.
type attrs struct{ set, clear uint64 }

// mountOptions is one mount's option list, taken apart.
type mountOptions struct {
	attrs                      // of the mount itself
	recursive            attrs // of the mount and all below it ("rro" and its kind)
	propagation          uint64
	propagateRecursively bool
	bind, rbind          bool
	tmpcopyup            bool
	idmap, ridmap        bool
	data                 []param // what is left belongs to the file system
}

// param is a parameter of a file system, in the order given.
type param struct{ key, value string }

const atimeMask = unix.MOUNT_ATTR__ATIME

// attrTable gives an option's attribute bits; mount(8), mount_setattr(2).
// Options of the atime family exclude each other, so each clears the group.
var attrTable = []struct {
	name       string
	set, clear uint64
}{
	{"ro", unix.MOUNT_ATTR_RDONLY, 0},
	{"rw", 0, unix.MOUNT_ATTR_RDONLY},
	{"nosuid", unix.MOUNT_ATTR_NOSUID, 0},
	{"suid", 0, unix.MOUNT_ATTR_NOSUID},
	{"nodev", unix.MOUNT_ATTR_NODEV, 0},
	{"dev", 0, unix.MOUNT_ATTR_NODEV},
	{"noexec", unix.MOUNT_ATTR_NOEXEC, 0},
	{"exec", 0, unix.MOUNT_ATTR_NOEXEC},
	{"nosymfollow", unix.MOUNT_ATTR_NOSYMFOLLOW, 0}, // Linux 5.14 for mount_setattr
	{"symfollow", 0, unix.MOUNT_ATTR_NOSYMFOLLOW},
	{"nodiratime", unix.MOUNT_ATTR_NODIRATIME, 0},
	{"diratime", 0, unix.MOUNT_ATTR_NODIRATIME},
	{"noatime", unix.MOUNT_ATTR_NOATIME, atimeMask},
	{"atime", unix.MOUNT_ATTR_RELATIME, atimeMask},
	{"relatime", unix.MOUNT_ATTR_RELATIME, atimeMask},
	{"norelatime", unix.MOUNT_ATTR_STRICTATIME, atimeMask},
	{"strictatime", unix.MOUNT_ATTR_STRICTATIME, atimeMask},
	{"nostrictatime", unix.MOUNT_ATTR_RELATIME, atimeMask},
}

var propagations = []struct {
	name string
	flag uint64
}{
	{"private", unix.MS_PRIVATE}, {"shared", unix.MS_SHARED}, {"slave", unix.MS_SLAVE}, {"unbindable", unix.MS_UNBINDABLE},
}

// superblockOptions are parameters that the VFS takes for every file system.
var superblockOptions = []string{"sync", "async", "dirsync", "lazytime", "nolazytime", "mand", "nomand"}

// Options lists every option that parseOptions knows, for the features
// document. What is not in it goes to the file system as it stands.
func Options() []string {
	names := []string{"bind", "rbind", "defaults", "idmap", "ridmap", "tmpcopyup"}
	for _, a := range attrTable {
		names = append(names, a.name, "r"+a.name)
	}
	for _, p := range propagations {
		names = append(names, p.name, "r"+p.name)
	}
	names = append(names, superblockOptions...)
	slices.Sort(names)
	return names
}

// parseOptions takes an option list apart. Later options win, as in mount(8).
func parseOptions(options []string) (o mountOptions, err error) {
	for _, opt := range options {
		switch {
		case opt == "" || opt == "defaults":
		case opt == "bind":
			o.bind = true
		case opt == "rbind":
			o.bind, o.rbind = true, true
		case opt == "tmpcopyup":
			o.tmpcopyup = true
		case opt == "idmap" || opt == "ridmap":
			o.idmap, o.ridmap = true, opt == "ridmap"
		case o.attr(opt) || o.propagate(opt):
		case strings.IndexByte(opt, 0) >= 0:
			return o, fmt.Errorf("option %q: NUL byte", opt)
		default:
			k, v, _ := strings.Cut(opt, "=")
			o.data = append(o.data, param{k, v})
			if !strings.Contains(opt, "=") {
				o.data[len(o.data)-1].value = flagOnly
			}
		}
	}
	return o, nil
}

// flagOnly marks a parameter without a value. No value can be equal to it: NUL
// is refused.
const flagOnly = "\x00"

func (o *mountOptions) attr(opt string) bool {
	for _, a := range attrTable {
		var to *attrs
		switch opt {
		case a.name:
			to = &o.attrs
		case "r" + a.name:
			to = &o.recursive
		default:
			continue
		}
		to.set = to.set&^(a.set|a.clear) | a.set
		to.clear = to.clear&^(a.set|a.clear) | a.clear
		return true
	}
	return false
}

// implyClear makes the options of a bind mount say everything once they say
// anything: what is not asked for is cleared, as users of OCI runtimes are used to,
// other than with mount(8). Without any the source's attributes stay. In a user
// namespace the kernel would lock them, so they stay there, but for the one that
// it does not lock (mount_setattr(2), "EPERM"). The time of access is kept unless
// an option is about it.
func (o *mountOptions) implyClear(mapped bool) {
	if o.attrs == (attrs{}) {
		return
	}
	implied := uint64(unix.MOUNT_ATTR_NOSYMFOLLOW)
	if !mapped {
		implied |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	}
	o.attrs.clear |= implied &^ (o.attrs.set | o.recursive.set)
}

func (o *mountOptions) propagate(opt string) bool {
	for _, p := range propagations {
		if opt == p.name || opt == "r"+p.name {
			o.propagation, o.propagateRecursively = p.flag, opt != p.name
			return true
		}
	}
	return false
}
