package seccomp

import "golang.org/x/sys/unix"

// program compiles the profile for the selected interfaces, the native one
// first.
func (p *profile) program(selected []*arch) ([]unix.SockFilter, error) {
	var groups [][]*calls // interfaces that share an audit architecture
next:
	for _, s := range selected {
		c, err := p.collect(s)
		if err != nil {
			return nil, err
		}
		for i := range groups {
			if groups[i][0].arch.audit == s.audit {
				groups[i] = append(groups[i], c)
				continue next
			}
		}
		groups = append(groups, []*calls{c})
	}

	a := &asm{code: make([]unix.SockFilter, 0, 512)}
	// Backwards: the native architecture comes out first, closest to where the
	// architecture is compared.
	next := a.ret(unix.SECCOMP_RET_KILL_THREAD)
	for i := len(groups) - 1; i >= 0; i-- {
		body := a.calls(p.segments(groups[i]), p.action)
		next = a.branch(opJEq, groups[i][0].arch.audit, body, next)
	}
	return a.program(a.load(offsetArch, next))
}

// calls writes the decision on the system call number.
func (a *asm) calls(list []segment, deflt uint32) pos {
	trees := make([]pos, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].tree != nil {
			trees[i] = a.tree(list[i].tree, deflt)
		}
	}
	return a.load(offsetNumber, a.search(list, trees))
}

// search writes a binary search over intervals. The accumulator holds the
// number.
func (a *asm) search(list []segment, trees []pos) pos {
	switch n := len(list); {
	case n == 1 && list[0].tree != nil:
		return a.near(trees[0])
	case n == 1:
		return a.ret(list[0].action)
	case n == 3 && list[0].target == list[2].target && list[1].start+1 == list[2].start:
		// One number that differs from all around it.
		outer := a.search(list[:1], trees[:1])
		inner := a.search(list[1:2], trees[1:2])
		return a.branch(opJEq, list[1].start, inner, outer)
	default:
		m := n / 2
		right := a.search(list[m:], trees[m:])
		left := a.search(list[:m], trees[:m])
		return a.branch(opJGe, list[m].start, right, left)
	}
}

// acc is what the accumulator holds: an argument's word under a mask.
type acc struct {
	word uint8
	mask uint32
}

// entry is a piece of code that decides, with the places to enter it.
type entry struct {
	any   pos // whatever the accumulator holds
	known [2]struct {
		acc
		at pos // 0: none
	}
}

// from is the best place to enter e with the accumulator as it is.
func (e *entry) from(has acc) pos {
	for i := range e.known {
		if e.known[i].at != 0 && e.known[i].acc == has {
			return e.known[i].at
		}
	}
	return e.any
}

// writer writes the tree of one call.
type writer struct {
	*asm
	done []written
}

// written is a level that is there already: a rule with inequalities reaches
// the same tests in two ways.
type written struct {
	level []*node
	then  pos
	entry entry
}

func (a *asm) tree(b *branch, deflt uint32) pos {
	w := writer{asm: a}
	e := w.level(b.level, entry{any: a.ret(deflt)})
	return e.any
}

// level writes a level; what it does not decide goes on at then.
func (w *writer) level(level []*node, then entry) entry {
	for i := range w.done {
		if d := &w.done[i]; d.then == then.any && equal(d.level, level) {
			return d.entry
		}
	}
	e := then
	for i := len(level) - 1; i >= 0; i-- {
		e = w.node(level[i], e)
	}
	w.done = append(w.done, written{level, then.any, e})
	return e
}

func (w *writer) branchTo(b *branch, then entry) entry {
	switch {
	case b.done:
		return entry{any: w.ret(b.action)}
	case b.level != nil:
		return w.level(b.level, then)
	}
	return then
}

// node writes a comparison with everything that it leads to.
func (w *writer) node(n *node, then entry) entry {
	if n.mask == 0 {
		return w.branchTo(&n.yes, then)
	}
	op, no := n.op, &n.no
	yes := &n.yes
	if n.op == opGreater && n.value == 0 && len(no.level) == 1 {
		// "Greater than 0, else equal to 0, else ...": the third is impossible.
		if o := no.level[0]; o.word == n.word && o.op == opEqual && o.value == 0 {
			op, yes, no = opEqual, &o.yes, &n.yes
		}
	}
	n2 := w.branchTo(no, then)
	n1 := w.branchTo(yes, then)
	whole := acc{n.word, ^uint32(0)}
	e := entry{}
	e.known[0].acc = whole
	switch op {
	case opEqual:
		e.known[0].at = w.branch(opJEq, n.value, n1.from(whole), n2.from(whole))
	case opGreater:
		e.known[0].at = w.branch(opJGt, n.value, n1.from(whole), n2.from(whole))
	case opGreaterEqual:
		e.known[0].at = w.branch(opJGe, n.value, n1.from(whole), n2.from(whole))
	case opMasked:
		switch {
		case n.mask == whole.mask:
			e.known[0].at = w.branch(opJEq, n.value, n1.from(whole), n2.from(whole))
		case n.value == 0:
			e.known[0].at = w.branch(opJSet, n.mask, n2.from(whole), n1.from(whole))
		case n.value == n.mask && n.mask&(n.mask-1) == 0:
			e.known[0].at = w.branch(opJSet, n.mask, n1.from(whole), n2.from(whole))
		default:
			masked := acc{n.word, n.mask}
			e.known[1].acc = masked
			e.known[1].at = w.branch(opJEq, n.value, n1.from(masked), n2.from(masked))
			w.fallTo(e.known[1].at)
			e.known[0].at = w.emit(opAnd, n.mask)
		}
	}
	// The low half comes first, on every machine that archs has.
	e.any = w.load(offsetArgs+4*uint32(n.word), e.known[0].at)
	return e
}
