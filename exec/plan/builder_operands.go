package plan

import (
	"strings"

	"golang.org/x/sys/unix"
)

func num[T ~int | ~uint | ~int32 | ~uint32 | ~uint64 | ~uintptr](v T) arg {
	return arg{kind: argNum, val: uint64(v)}
}

// fd records a descriptor operand.
func (b *Builder) fd(f FD) arg {
	if f.isSlot {
		if f.slot < 0 || int(f.slot) >= b.p.slots {
			b.fail("slot %d does not belong to this builder", f.slot)
		} else if !b.filled[f.slot] {
			b.fail("slot %d is used before a step fills it", f.slot)
		}
		return arg{kind: argSlot, val: uint64(f.slot)}
	}
	if f.name == "" {
		b.fail("a descriptor has no name")
	}
	if f.num < 0 && f.num != unix.AT_FDCWD && f.num != unresolved {
		b.fail("descriptor %s is %d", f.name, f.num)
	}
	// Steps that use a descriptor stand together: a longer memory is not worth
	// the time in a plan with hundreds of them.
	for i := len(b.p.names) - 1; i >= max(0, len(b.p.names)-8); i-- {
		if b.p.names[i] == f.name {
			return arg{kind: argFD, val: uint64(int64(f.num)), aux: uint32(i)}
		}
	}
	b.p.names = append(b.p.names, f.name)
	return arg{kind: argFD, val: uint64(int64(f.num)), aux: uint32(len(b.p.names) - 1)}
}

// str records a string operand.
func (b *Builder) str(s string) arg {
	if strings.IndexByte(s, 0) >= 0 {
		b.fail("string %.60q contains a NUL", s)
	}
	off := len(b.p.data)
	b.p.data = append(append(b.p.data, s...), 0)
	return arg{kind: argData, val: uint64(off), aux: uint32(len(s))}
}

// bytes records an operand that may hold NULs. Words may be read from it, so
// it is aligned to 8 bytes.
func (b *Builder) bytes(s []byte) arg {
	b.align()
	off := len(b.p.data)
	b.p.data = append(append(b.p.data, s...), 0)
	return arg{kind: argData, val: uint64(off), aux: uint32(len(s))}
}

func (b *Builder) align() {
	for len(b.p.data)%8 != 0 {
		b.p.data = append(b.p.data, 0)
	}
}

// vec records a string vector.
func (b *Builder) vec(what string, list []string) arg {
	a := arg{kind: argVec, val: uint64(len(b.p.offs)), aux: uint32(len(list))}
	for i, s := range list {
		if strings.IndexByte(s, 0) >= 0 {
			b.fail("%s[%d] contains a NUL", what, i)
		}
		b.p.offs = append(b.p.offs, uint32(len(b.p.data)))
		b.p.data = append(append(b.p.data, s...), 0)
	}
	return a
}

// ids records a list of 32-bit numbers.
func (b *Builder) ids(list []uint32) arg {
	b.align()
	a := arg{kind: argData, val: uint64(len(b.p.data)), aux: uint32(len(list) * 4)}
	for _, id := range list {
		b.p.data = native.AppendUint32(b.p.data, id)
	}
	b.p.data = append(b.p.data, 0)
	return a
}

// filter records a BPF program.
func (b *Builder) filter(list []unix.SockFilter) arg {
	b.align()
	a := arg{kind: argData, val: uint64(len(b.p.data)), aux: uint32(len(list) * 8)}
	for _, f := range list {
		b.p.data = native.AppendUint16(b.p.data, f.Code)
		b.p.data = append(b.p.data, f.Jt, f.Jf)
		b.p.data = native.AppendUint32(b.p.data, f.K)
	}
	b.p.data = append(b.p.data, 0)
	return a
}

// buf records a place in a buffer. Whether what is used of it fits is checked
// by add.
func (b *Builder) buf(f Buf, off int) arg {
	if f < 0 || int(f) >= len(b.p.bufs) {
		b.fail("buffer %d does not belong to this builder", f)
		return arg{kind: argBuf}
	}
	if off < 0 || off > int(b.p.bufs[f]) {
		b.fail("offset %d is outside buffer %d", off, f)
		off = 0
	}
	return arg{kind: argBuf, val: uint64(f), aux: uint32(off)}
}

// whole records a whole buffer and its size.
func (b *Builder) whole(f Buf) (arg, arg) {
	a := b.buf(f, 0)
	if a.val >= uint64(len(b.p.bufs)) {
		return a, num(0)
	}
	return a, num(b.p.bufs[a.val])
}
