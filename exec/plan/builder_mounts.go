package plan

import "golang.org/x/sys/unix"

// Fsopen opens a new filesystem context.
func (b *Builder) Fsopen(fs string, flags int) Slot {
	return b.addSlot(opFsopen, b.str(fs), num(flags))
}

// FsconfigString sets a parameter of a filesystem context to a string.
func (b *Builder) FsconfigString(fs FD, key, val string) {
	b.add(opFsconfigString, b.fd(fs), b.str(key), b.str(val))
}

// FsconfigFlag sets a parameter without a value.
func (b *Builder) FsconfigFlag(fs FD, key string) { b.add(opFsconfigFlag, b.fd(fs), b.str(key)) }

// FsconfigFD sets a parameter to a descriptor.
func (b *Builder) FsconfigFD(fs FD, key string, f FD) {
	b.add(opFsconfigFD, b.fd(fs), b.str(key), b.fd(f))
}

// FsconfigCreate makes the superblock.
func (b *Builder) FsconfigCreate(fs FD) { b.add(opFsconfigCreate, b.fd(fs)) }

// Fsmount makes a detached mount of a created filesystem context. The
// attributes are MOUNT_ATTR_*.
func (b *Builder) Fsmount(fs FD, flags, attrs int) Slot {
	return b.addSlot(opFsmount, b.fd(fs), num(flags), num(attrs))
}

// OpenTree opens a mount, or with OPEN_TREE_CLONE a detached copy of it.
func (b *Builder) OpenTree(dir FD, path string, flags uint) Slot {
	return b.addSlot(opOpenTree, b.fd(dir), b.str(path), num(flags))
}

// MoveMount attaches or moves a mount.
func (b *Builder) MoveMount(from FD, fromPath string, to FD, toPath string, flags int) {
	b.add(opMoveMount, b.fd(from), b.str(fromPath), b.fd(to), b.str(toPath), num(flags))
}

// MountSetattr changes the attributes and the propagation of a mount. With
// MOUNT_ATTR_IDMAP, attr.Userns_fd is a descriptor that the child inherits;
// for one in a slot there is MountSetattrUserns.
func (b *Builder) MountSetattr(dir FD, path string, flags uint, attr unix.MountAttr) {
	userns := noFD
	if attr.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 {
		userns = Num(int(attr.Userns_fd), "userns")
	}
	b.MountSetattrUserns(dir, path, flags, attr, userns)
}

// MountSetattrUserns is MountSetattr with the user namespace as an operand;
// attr.Userns_fd is ignored.
func (b *Builder) MountSetattrUserns(dir FD, path string, flags uint, attr unix.MountAttr, userns FD) {
	b.add(opMountSetattr, b.fd(dir), b.str(path), num(flags),
		num(attr.Attr_set), num(attr.Attr_clr), num(attr.Propagation), b.fd(userns))
}

// Mount is mount(2). Empty strings are passed as such, not as NULL.
func (b *Builder) Mount(source, target, fstype string, flags uintptr, data string) {
	b.add(opMount, b.str(source), b.str(target), b.str(fstype), num(flags), b.str(data))
}

// Umount2 detaches a mount.
func (b *Builder) Umount2(target string, flags int) { b.add(opUmount2, b.str(target), num(flags)) }

// PivotRoot makes newroot the root mount and puts the old one on putold.
func (b *Builder) PivotRoot(newroot, putold string) {
	b.add(opPivotRoot, b.str(newroot), b.str(putold))
}
