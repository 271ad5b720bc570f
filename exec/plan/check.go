package plan

import (
	"math"

	"golang.org/x/sys/unix"
)

// Limits of a plan.
const (
	maxBuffers  = 16 << 20 // bytes of all buffers together
	maxFilter   = 4096     // instructions, BPF_MAXINSNS
	maxOperands = 9
)

// The checks of operands that belong together run for built and parsed steps
// alike: a parsed plan is as safe to fork as a built one.

// room reports a buffer operand that has fewer than n bytes left.
func (b *Builder) room(a arg, n uint64) {
	if a.val >= uint64(len(b.p.bufs)) {
		return // reported by buf
	}
	if size := uint64(b.p.bufs[a.val]); uint64(a.aux) > size || n > size-uint64(a.aux) {
		b.fail("%d bytes from %d on are outside buffer %d of %d bytes", n, a.aux, a.val, size)
	}
}

func checkReadWrite(b *Builder, a []arg) { b.room(a[1], a[2].val) }
func checkGetcwd(b *Builder, a []arg)    { b.room(a[0], a[1].val) }
func checkReadlink(b *Builder, a []arg)  { b.room(a[2], a[3].val) }
func checkStatx(b *Builder, a []arg)     { b.room(a[4], StatxSize) }
func checkExecveBuf(b *Builder, a []arg) { b.room(a[0], 1) }

func checkExpectByte(b *Builder, a []arg) {
	b.room(a[0], 1)
	if a[1].val > math.MaxUint8 {
		b.fail("%#x is not a byte", a[1].val)
	}
	b.checkErrno(a[2])
}

func checkExpectEqual(b *Builder, a []arg) {
	b.room(a[0], 8)
	b.room(a[1], 8)
	if a[0].aux%8 != 0 || a[1].aux%8 != 0 {
		b.fail("offsets %d and %d are not multiples of 8", a[0].aux, a[1].aux)
	}
	b.checkErrno(a[2])
}

func (b *Builder) checkErrno(a arg) {
	if a.val == 0 || a.val > maxErrno {
		b.fail("errno %d is out of range", a.val)
	}
}

func checkSendFD(b *Builder, a []arg) {
	if a[2].aux == 0 {
		b.fail("send_fd: data is empty; a stream socket would drop the descriptor")
	}
}

// checkClone refuses what would let the two processes share their stack, and
// what a plan has no place for.
func checkClone(b *Builder, a []arg) {
	const refused = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_THREAD | unix.CLONE_SIGHAND |
		unix.CLONE_SETTLS | unix.CLONE_PIDFD | unix.CLONE_PARENT_SETTID |
		unix.CLONE_CHILD_SETTID | unix.CLONE_CHILD_CLEARTID
	flags := a[0].val
	if bad := flags & refused; bad != 0 {
		b.fail("clone: flags %#x are not possible in a plan", bad)
	}
	if sig := flags & 0xff; sig != uint64(unix.SIGCHLD) {
		b.fail("clone: exit signal %d is not SIGCHLD", sig)
	}
	if flags>>32 != 0 {
		b.fail("clone: flags %#x need clone3", flags)
	}
}

func checkSeccomp(b *Builder, a []arg) {
	if n := a[1].aux / 8; n == 0 || n > maxFilter {
		b.fail("seccomp: %d instructions are not between 1 and %d", n, maxFilter)
	}
}

func checkAffinity(b *Builder, a []arg) {
	if a[0].aux == 0 || a[0].aux%8 != 0 {
		b.fail("sched_setaffinity: a mask of %d bytes is not made of whole words", a[0].aux)
	}
}

// A structure holds the descriptor, so it must be one that exists.
func checkMountAttr(b *Builder, a []arg) {
	idmap := a[3].val&unix.MOUNT_ATTR_IDMAP != 0
	if ns := a[6]; !idmap && (ns.kind == argSlot || ns.val != 0) && int64(ns.val) != unresolved {
		b.fail("mount_setattr: a user namespace without IDMAP")
	}
}
