package seccomp

import (
	"errors"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The rules with arguments of one call form a tree of tests on 32-bit words,
// which is all that classic BPF can compare. A level is a list of nodes that
// are tried in order; a node leads on, on either outcome, to an action, to a
// level of its own, or nowhere; what leads nowhere, and a level that ends
// without an action, goes on with the next node of the level above.
//
// The order on a level is libseccomp's and decides which of several matching
// rules wins: the higher argument first; then equality (EQ, NE, MASKED_EQ)
// before upper bounds (LT, LE) before lower bounds (GT, GE); then the larger
// value, but for upper bounds the smaller; then the profile's order.
//
// Unlike libseccomp's, no two branches share a level: a rule that is added to
// one of them must not be seen from the other.

// node compares one word of an argument.
type node struct {
	word  uint8  // 2*argument, plus 1 for its high half
	op    wordOp // what is compared here
	rank  uint8  // class of the rule's own operator; higher goes first
	upper bool   // the rule's own operator is an upper bound
	mask  uint32
	value uint32 // under mask
	full  uint64 // the rule's whole value
	yes   branch
	no    branch
}

type wordOp uint8

const (
	opEqual wordOp = iota
	opMasked
	opGreater
	opGreaterEqual
)

// branch is where one outcome of a node leads; its zero value is nowhere.
type branch struct {
	done   bool
	action uint32 // if done
	level  []*node
}

var errContradiction = errors.New("contradicts an earlier rule with the same arguments")

// grow makes the tree of a single rule. It is done at once if the tests are
// always true.
func grow(tests []test, wide bool, action uint32) branch {
	if len(tests) == 0 {
		return branch{done: true, action: action}
	}
	t := tests[0]
	if !wide {
		t.mask &= 0xffffffff
		t.value &= 0xffffffff
	}
	if t.mask == 0 {
		return grow(tests[1:], wide, action)
	}
	// Each use of rest is a copy of its own; see above.
	rest := func() branch { return grow(tests[1:], wide, action) }
	low := t.node(false)
	switch t.op {
	case specs.OpEqualTo, specs.OpMaskedEqual:
		low.yes = rest()
	case specs.OpNotEqual:
		low.no = rest()
	case specs.OpGreaterThan:
		low.op, low.yes = opGreater, rest()
	case specs.OpGreaterEqual:
		low.op, low.yes = opGreaterEqual, rest()
	case specs.OpLessThan:
		low.op, low.no = opGreaterEqual, rest()
	case specs.OpLessEqual:
		low.op, low.no = opGreater, rest()
	}
	if !wide {
		return branch{level: []*node{low}}
	}
	high := t.node(true)
	high.yes.level = []*node{low}
	switch t.op {
	case specs.OpEqualTo, specs.OpMaskedEqual:
		return branch{level: []*node{high}}
	case specs.OpNotEqual:
		high.no = rest()
		return branch{level: []*node{high}}
	}
	above := t.node(true) // high half greater: the low half does not matter
	above.op = opGreater
	above.no.level = []*node{high}
	if t.op == specs.OpGreaterThan || t.op == specs.OpGreaterEqual {
		above.yes = rest()
	} else {
		high.no = rest()
	}
	return branch{level: []*node{above}}
}

// node compares a half of t's argument for equality.
func (t test) node(high bool) *node {
	n := &node{word: 2 * t.arg, full: t.value, mask: uint32(t.mask), value: uint32(t.value & t.mask)}
	if high {
		n.word++
		n.mask, n.value = uint32(t.mask>>32), uint32(t.value&t.mask>>32)
	}
	switch t.op {
	case specs.OpMaskedEqual:
		n.op, n.rank = opMasked, 3
	case specs.OpEqualTo, specs.OpNotEqual:
		n.rank = 3
	case specs.OpLessEqual, specs.OpLessThan:
		n.rank, n.upper = 2, true
	default:
		n.rank = 1
	}
	return n
}

// same reports whether two nodes make the same comparison.
func (n *node) same(o *node) bool {
	return n.word == o.word && n.op == o.op && n.mask == o.mask && n.value == o.value
}

// after reports whether n is tried after o.
func (n *node) after(o *node) bool {
	switch {
	case n.word != o.word:
		return n.word < o.word
	case n.rank != o.rank:
		return n.rank < o.rank
	case n.upper:
		return n.value > o.value
	}
	return n.value < o.value
}

func (n *node) leaf() bool { return n.yes.level == nil && n.no.level == nil }

// insert adds the tree of a rule, which starts with one node, to a level.
func insert(level []*node, n *node) ([]*node, error) {
	for i, x := range level {
		if x.same(n) {
			return level, x.merge(n)
		}
		if x.after(n) {
			level = append(level, nil)
			copy(level[i+1:], level[i:])
			level[i] = n
			return level, nil
		}
	}
	return append(level, n), nil
}

// merge adds the branches of o, which makes the same comparison, to n.
func (n *node) merge(o *node) error {
	// Of two lower bounds whose high halves are equal the tighter one decides
	// what happens above that half.
	tighter := o.word&1 == 1 && o.full > n.full
	leaf := n.leaf() || o.leaf()
	if err := n.yes.merge(&o.yes, tighter, leaf); err != nil {
		return err
	}
	return n.no.merge(&o.no, false, leaf)
}

func (b *branch) merge(o *branch, replace, leaf bool) error {
	switch {
	case o.done && b.done:
		if b.action == o.action {
			return nil
		}
		if leaf {
			return errContradiction
		}
		if replace {
			b.action = o.action
		}
	case o.done:
		// The new rule needs fewer tests than the ones that are here.
		if !only(b.level, o.action) {
			return errContradiction
		}
		*b = *o
	case b.done:
		// The rule that is here needs fewer tests: the new one never matters.
	case o.level != nil && b.level != nil:
		level, err := insert(b.level, o.level[0])
		b.level = level
		return err
	case o.level != nil:
		*b = *o
	}
	return nil
}

// only reports whether every action of a level is the given one.
func only(level []*node, action uint32) bool {
	for _, n := range level {
		for _, b := range [...]*branch{&n.yes, &n.no} {
			if b.done && b.action != action || !only(b.level, action) {
				return false
			}
		}
	}
	return true
}

// equal reports whether two levels decide alike.
func equal(a, b []*node) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].same(b[i]) || !a[i].yes.equal(&b[i].yes) || !a[i].no.equal(&b[i].no) {
			return false
		}
	}
	return true
}

func (b *branch) equal(o *branch) bool {
	return b.done == o.done && b.action == o.action && equal(b.level, o.level)
}
