package plan

import (
	"golang.org/x/sys/unix"
)

// The arena holds everything the child reads or writes:
//
//	failure word   16 bytes: magic, step, errno, padding
//	slots          8 bytes each
//	buffers        as the plan asked for, rounded up to 8
//	structures     what system calls take by address
//	vectors        argv and envp: addresses, then a zero
//	data           strings, each with its NUL, and bytes
//
// It lies outside the Go heap, with the steps and the child's stack (memory), so
// the addresses in it and in the steps stay good until Close.
const (
	failureOffset = 0
	slotsOffset   = 16
)

// compiler lowers the operands of a plan to system call arguments.
type compiler struct {
	p     *Plan
	base  uintptr // address of the arena
	bufs  []uint32
	data  uintptr // address of the data
	words int     // arena word where the next structure goes
	vecs  int     // arena word where the next vector goes
}

// compile lays out the arena and fills in the steps.
func (p *Plan) compile() error {
	head := slotsOffset/8 + p.slots
	nbuf, nstruct, nvec := 0, 0, 0
	for _, size := range p.bufs {
		nbuf += int(size+7) / 8
	}
	for i := range p.ops {
		o := &p.ops[i]
		nstruct += specs[o.kind].words
		for _, a := range p.operands(o) {
			if a.kind == argVec {
				nvec += int(a.aux) + 1
			}
		}
	}
	fixed := head + nbuf + nstruct + nvec
	m, steps, words, err := newMemory(len(p.ops), fixed+(len(p.data)+7)/8)
	if err != nil {
		return err
	}
	p.own(m)
	p.steps, p.arena = steps, words
	arena := arenaBytes(p.arena)
	copy(arena[fixed*8:], p.data)
	for i := range p.slots {
		p.arena[slotsOffset/8+i] = ^uint64(0)
	}

	base := arenaAddr(p.arena)
	c := compiler{
		p: p, base: base, data: base + uintptr(fixed)*8,
		words: head + nbuf, vecs: head + nbuf + nstruct,
	}
	if len(p.bufs) > 0 {
		c.bufs = make([]uint32, len(p.bufs))
		off := uint32(head * 8)
		for i, size := range p.bufs {
			c.bufs[i] = off
			off += (size + 7) &^ 7
		}
	}
	for i := range p.ops {
		c.lower(&p.ops[i], &p.steps[i], i)
	}
	return nil
}

func (p *Plan) operands(o *op) []arg {
	return p.args[o.first : o.first+uint32(o.nargs)]
}

// lower compiles one step.
func (c *compiler) lower(o *op, s *step, index int) {
	sp := &specs[o.kind]
	args := c.p.operands(o)
	s.nr = sp.nr
	if sp.words > 0 {
		w := c.p.arena[c.words : c.words+sp.words]
		if sp.pack != nil {
			sp.pack(c, args, w)
		} else {
			for i := sp.packFrom; i < len(args); i++ {
				w[i-sp.packFrom] = args[i].val
			}
		}
		if sp.patch > 0 {
			s.patch = uint32(c.words+sp.patch-1) * 8
		}
	}
	for i, r := range sp.raw {
		c.lowerArg(s, i, r, args)
	}
	c.words += sp.words

	if o.out >= 0 {
		s.out = c.slot(uint64(o.out))
	}
	switch {
	case o.hasWant:
		s.flags, s.want = s.flags|stepWant, uintptr(o.want)
	case sp.full > 0:
		s.flags, s.want = s.flags|stepWant, s.args[sp.full-1]
	}
	if !sp.once && !sp.pseudo {
		s.flags |= stepRetry
	}
	c.lowerJumps(o, s, index)
}

func (c *compiler) lowerJumps(o *op, s *step, index int) {
	if o.ok >= 0 {
		s.ok = uint16(o.ok)
	}
	if o.zero >= 0 {
		s.zero = uint16(o.zero)
	}
	eintr := false
	for _, r := range o.rules {
		if r.errno == 0 {
			break
		}
		eintr = eintr || r.errno == uint16(unix.EINTR)
		if r.to == nextStep {
			r.to = uint16(index + 1)
		}
		s.rules[s.nrules] = r
		s.nrules++
	}
	if o.kind == opClose && !eintr && s.nrules < maxRules {
		s.rules[s.nrules] = rule{errno: uint16(unix.EINTR), to: uint16(index + 1)}
		s.nrules++
	}
}

// lowerArg fills in argument i of s.
func (c *compiler) lowerArg(s *step, i int, r raw, args []arg) {
	switch r.how() {
	case rOp:
		if a := args[r.i()]; a.kind == argSlot {
			s.args[i] = uintptr(c.slot(a.val))
			s.slots |= 1 << i
		} else {
			s.args[i] = c.value(a)
		}
	case rConst:
		s.args[i] = uintptr(r.i())
	case rLen:
		s.args[i] = uintptr(args[r.i()].aux)
	case rCount:
		s.args[i] = uintptr(args[r.i()].aux / 4)
	case rStruct:
		s.args[i] = c.base + uintptr(c.words+r.i())*8
	case rOffset:
		s.args[i] = c.value(args[r.i()]) - c.base
	case rAddr:
		s.args[i] = c.base + uintptr(c.slot(args[r.i()].val))
	}
}

func (c *compiler) slot(i uint64) uint32 { return slotsOffset + uint32(i)*8 }

// value returns what the kernel gets for an operand that is not a slot.
func (c *compiler) value(a arg) uintptr {
	switch a.kind {
	case argData:
		return c.data + uintptr(a.val)
	case argBuf:
		return c.base + uintptr(c.bufs[a.val]) + uintptr(a.aux)
	case argVec:
		return c.vector(a)
	}
	return uintptr(a.val)
}

// vector writes the addresses of a string vector.
func (c *compiler) vector(a arg) uintptr {
	addr := c.base + uintptr(c.vecs)*8
	for _, off := range c.p.offs[a.val : a.val+uint64(a.aux)] {
		c.p.arena[c.vecs] = uint64(c.data) + uint64(off)
		c.vecs++
	}
	c.vecs++ // the terminating zero
	return addr
}

// packMountAttr fills a struct mount_attr; userns_fd is patched in by the child.
func packMountAttr(_ *compiler, a []arg, w []uint64) {
	w[0], w[1], w[2] = a[3].val, a[4].val, a[5].val
}

// packCaps fills a struct __user_cap_header_struct for the caller itself and
// the two struct __user_cap_data_struct of version 3.
//
// capset(2): "data[0]" holds the low 32 bits of the three sets, "data[1]" the
// high ones.
func packCaps(_ *compiler, a []arg, w []uint64) {
	eff, perm, inh := a[0].val, a[1].val, a[2].val
	w[0] = unix.LINUX_CAPABILITY_VERSION_3
	w[1] = pair(eff, perm)
	w[2] = pair(inh, eff>>32)
	w[3] = pair(perm>>32, inh>>32)
}

// pair joins two 32-bit fields. Both architectures that ibex builds for are
// little-endian.
func pair(lo, hi uint64) uint64 { return lo&(1<<32-1) | hi<<32 }

// packFilter fills a struct sock_fprog.
func packFilter(c *compiler, a []arg, w []uint64) {
	w[0] = uint64(a[1].aux / 8)
	w[1] = uint64(c.value(a[1]))
}

// packSchedAttr fills a struct sched_attr of 56 bytes (sched_setattr(2), with
// the two utilization hints since Linux 5.3).
func packSchedAttr(_ *compiler, a []arg, w []uint64) {
	w[0] = pair(unix.SizeofSchedAttr, a[0].val)
	w[1] = a[1].val
	w[2] = pair(a[2].val, a[3].val)
	w[3], w[4], w[5] = a[4].val, a[5].val, a[6].val
	w[6] = pair(a[7].val, a[8].val)
}

// packSendFD fills a struct msghdr, its iovec, and a control message with
// SCM_RIGHTS for one descriptor, which the child patches in.
func packSendFD(c *compiler, a []arg, w []uint64) {
	addr := uint64(c.base) + uint64(c.words)*8
	w[2] = addr + 7*8 // msg_iov
	w[3] = 1
	w[4] = addr + 9*8 // msg_control
	w[5] = 24
	w[7] = uint64(c.value(a[2]))
	w[8] = uint64(a[2].aux)
	w[9] = 16 + 4 // cmsg_len
	w[10] = pair(unix.SOL_SOCKET, unix.SCM_RIGHTS)
}
