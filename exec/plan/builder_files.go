package plan

import "golang.org/x/sys/unix"

// Openat2 opens path, resolved from dir as how.Resolve says. O_CLOEXEC is not
// added.
func (b *Builder) Openat2(dir FD, path string, how unix.OpenHow) Slot {
	return b.addSlot(opOpenat2, b.fd(dir), b.str(path), num(how.Flags), num(how.Mode), num(how.Resolve))
}

// Close closes a descriptor. EINTR counts as success: the descriptor is gone.
func (b *Builder) Close(f FD) { b.add(opClose, b.fd(f)) }

// CloseRange closes the descriptors first to last, both included.
func (b *Builder) CloseRange(first, last uint) { b.add(opCloseRange, num(first), num(last)) }

// Dup3 makes the number to a copy of from. The flags are 0 or O_CLOEXEC. It
// fails with EINVAL if the two are the same number, which a slot may well be:
// see Tolerate.
func (b *Builder) Dup3(from FD, to int, flags int) {
	b.add(opDup3, b.fd(from), num(to), num(flags))
}

// Read reads up to n bytes to the start of buf. With Want(n) a shorter message,
// or none because the writer is gone, fails the step.
func (b *Builder) Read(f FD, dst Buf, n int) {
	b.add(opRead, b.fd(f), b.buf(dst, 0), num(n))
}

// Write writes data with one call. Less than everything fails with EPROTO.
func (b *Builder) Write(f FD, data []byte) { b.add(opWrite, b.fd(f), b.bytes(data)) }

// WriteBuf writes the first n bytes of src with one call. Less than everything
// fails with EPROTO.
func (b *Builder) WriteBuf(f FD, src Buf, n int) {
	b.add(opWriteBuf, b.fd(f), b.buf(src, 0), num(n))
}

// WriteSlot writes the content of a slot: 8 bytes in native order.
func (b *Builder) WriteSlot(f FD, s Slot) { b.add(opWriteSlot, b.fd(f), b.fd(s.FD())) }

// SendFD sends a descriptor over a Unix socket (SCM_RIGHTS), with data, which
// must not be empty.
func (b *Builder) SendFD(sock, f FD, data []byte) {
	b.add(opSendFD, b.fd(sock), b.fd(f), b.bytes(data))
}

// Fchdir changes the working directory to an open one.
func (b *Builder) Fchdir(f FD) { b.add(opFchdir, b.fd(f)) }

// Chdir changes the working directory.
func (b *Builder) Chdir(path string) { b.add(opChdir, b.str(path)) }

// Chroot changes the root directory, not the working directory.
func (b *Builder) Chroot(path string) { b.add(opChroot, b.str(path)) }

// Getcwd puts the path of the working directory and a NUL into dst. The kernel
// prefixes "(unreachable)" instead of failing when the directory lies outside
// the root; ExpectByte(dst, 0, '/', …) tells the two apart.
func (b *Builder) Getcwd(dst Buf) {
	buf, n := b.whole(dst)
	b.add(opGetcwd, buf, n)
}

// Mkdirat makes a directory. The umask applies.
func (b *Builder) Mkdirat(dir FD, name string, mode uint32) {
	b.add(opMkdirat, b.fd(dir), b.str(name), num(mode))
}

// Mknodat makes a node of the type in mode. The umask applies. The device
// number is encoded as unix.Mkdev does.
func (b *Builder) Mknodat(dir FD, name string, mode uint32, dev uint64) {
	b.add(opMknodat, b.fd(dir), b.str(name), num(mode), num(dev))
}

// Symlinkat makes a symbolic link called name that points to target.
func (b *Builder) Symlinkat(target string, dir FD, name string) {
	b.add(opSymlinkat, b.str(target), b.fd(dir), b.str(name))
}

// Unlinkat removes a name; a directory with AT_REMOVEDIR.
func (b *Builder) Unlinkat(dir FD, name string, flags int) {
	b.add(opUnlinkat, b.fd(dir), b.str(name), num(flags))
}

// Readlinkat puts the target of a link, without a NUL, into dst.
func (b *Builder) Readlinkat(dir FD, name string, dst Buf) {
	d, s := b.fd(dir), b.str(name)
	buf, n := b.whole(dst)
	b.add(opReadlinkat, d, s, buf, n)
}

// Fchown changes the owner of an open file; -1 leaves one as it is.
func (b *Builder) Fchown(f FD, uid, gid int) { b.add(opFchown, b.fd(f), num(uid), num(gid)) }

// Fchownat changes the owner of a file; -1 leaves one as it is.
func (b *Builder) Fchownat(dir FD, name string, uid, gid int, flags int) {
	b.add(opFchownat, b.fd(dir), b.str(name), num(uid), num(gid), num(flags))
}

// Fchmod changes the mode of an open file.
func (b *Builder) Fchmod(f FD, mode uint32) { b.add(opFchmod, b.fd(f), num(mode)) }

// Fchmodat changes the mode of a file. It follows a link in the last component.
func (b *Builder) Fchmodat(dir FD, name string, mode uint32) {
	b.add(opFchmodat, b.fd(dir), b.str(name), num(mode))
}

// Umask sets the file mode creation mask.
func (b *Builder) Umask(mask int) { b.add(opUmask, num(mask)) }

// StatxSize is the size in bytes of the buffer that Statx needs.
const StatxSize = 256

// Statx puts a struct statx into dst, which has at least StatxSize bytes.
func (b *Builder) Statx(dir FD, path string, flags int, mask uint, dst Buf) {
	b.add(opStatx, b.fd(dir), b.str(path), num(flags), num(mask), b.buf(dst, 0))
}

// ExpectByte fails with errno if the byte of buf at off is not want.
func (b *Builder) ExpectByte(buf Buf, off int, want byte, errno unix.Errno) {
	b.add(opExpectByte, b.buf(buf, off), num(uint(want)), num(errno))
}

// ExpectEqual64 fails with errno if the 8 bytes of a at aoff differ from those
// of c at coff. The offsets are multiples of 8.
func (b *Builder) ExpectEqual64(a Buf, aoff int, c Buf, coff int, errno unix.Errno) {
	b.add(opExpectEqual64, b.buf(a, aoff), b.buf(c, coff), num(errno))
}
