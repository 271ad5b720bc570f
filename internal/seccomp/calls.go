package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// calls is what a profile says about the calls of one interface.
type calls struct {
	arch  *arch
	slots [numCodes]slot // by code
	trees []branch       // by slot.tree-1
	last  uint32         // highest number that the profile names, 0 if none
}

// slot is the state of one call.
type slot struct {
	action uint32
	tree   int32 // 0: no rule; always: action; else trees[tree-1]
}

const always = -1

// collect applies the rules to one interface, in the profile's order.
func (p *profile) collect(a *arch) (*calls, error) {
	c := &calls{arch: a}
	numbers := &codes[a.column]
	for i := range p.rules {
		r := &p.rules[i]
		for _, name := range r.calls {
			code := numbers[name]
			through, op := "", uint64(0)
			if a.muxed {
				through, op = multiplexed(nameAt(int(name)))
			}
			if code != absent && through == "" {
				c.last = max(c.last, a.number(code))
			}
			if r.action == p.action {
				continue
			}
			var err error
			if through != "" {
				err = c.addOperation(r, numbers[lookup(through)], op)
			}
			if code != absent && err == nil {
				err = c.add(r, code)
			}
			if err != nil {
				return nil, fmt.Errorf("seccomp.syscalls[%d]: %s: %w", r.field, nameAt(int(name)), err)
			}
		}
	}
	return c, nil
}

// add applies r to the call with the given code.
func (c *calls) add(r *rule, code uint16) error {
	if len(r.alternatives) == 0 {
		return c.addTests(r.action, code, nil)
	}
	for _, tests := range r.alternatives {
		if err := c.addTests(r.action, code, tests); err != nil {
			return err
		}
	}
	return nil
}

// addOperation applies r to one operation of socketcall(2) or ipc(2). The
// operation takes the place of a test of the first argument; the others are
// kept as they are, though they no longer see what the profile means, because
// libseccomp does.
func (c *calls) addOperation(r *rule, code uint16, op uint64) error {
	first := test{op: operators[0], value: op, mask: ^uint64(0)}
	if len(r.alternatives) == 0 {
		return c.addTests(r.action, code, []test{first})
	}
	for _, tests := range r.alternatives {
		if tests[0].arg == 0 {
			tests = tests[1:]
		}
		if err := c.addTests(r.action, code, append([]test{first}, tests...)); err != nil {
			return err
		}
	}
	return nil
}

func (c *calls) addTests(action uint32, code uint16, tests []test) error {
	s := &c.slots[code]
	if s.tree == always {
		return nil
	}
	if len(tests) == 0 {
		*s = slot{action: action, tree: always}
		return nil
	}
	b := grow(tests, c.arch.wide, action)
	switch {
	case b.done:
		*s = slot{action: action, tree: always}
	case s.tree == 0:
		c.trees = append(c.trees, b)
		s.tree = int32(len(c.trees))
	default:
		t := &c.trees[s.tree-1]
		level, err := insert(t.level, b.level[0])
		t.level = level
		return err
	}
	return nil
}

// target is what happens to a call: an action, or a tree that decides.
type target struct {
	action uint32
	tree   *branch
}

// segment is an interval of system call numbers, up to the next one's start.
type segment struct {
	start uint32
	target
}

// segments cuts the numbers of one audit architecture into intervals. group
// is the one interface that it has, or x86_64 and x32.
func (p *profile) segments(group []*calls) []segment {
	deflt := target{action: p.action}
	kill := target{action: unix.SECCOMP_RET_KILL_THREAD}
	enosys := target{action: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	native := group[0]

	list := make([]segment, 0, 128)
	// part appends the numbers from start on as c has them: rules where its
	// calls are, and ENOSYS after the last one if this profile wants that.
	// Without c they belong to an interface that is not allowed.
	part := func(start uint32, c *calls, rules bool) {
		switch {
		case c == nil:
			list = push(list, start, kill)
			return
		case p.lenient || c.last == 0:
			list = push(list, start, deflt)
		case start <= c.last:
			list = push(list, start, deflt)
			defer func() { list = push(list, c.last+1, enosys) }()
		default:
			list = push(list, start, enosys)
		}
		if rules {
			list = c.push(list, deflt, p.lenient)
		}
	}
	if native.arch.audit != archs[0].audit {
		part(0, native, true)
		return list
	}
	// On x86 bit 30 tells the two interfaces apart, whatever the higher bit is.
	var x86, x32 *calls
	for _, c := range group {
		if c.arch.base == x32Bit {
			x32 = c
		} else {
			x86 = c
		}
	}
	part(0, x86, true)
	part(x32Bit, x32, true)
	switch {
	case x32 == nil && (p.lenient || x86 == nil || x86.last == 0):
		// Whatever is above x86_64's numbers counts as x32 to libseccomp; only
		// ENOSYS, which comes before its tests, looks at bit 30 alone.
		part(1<<31, nil, false)
	default:
		part(1<<31, x86, false)
	}
	part(1<<31|x32Bit, x32, false)
	if x32 == nil {
		// seccomp(2): a tracer changes the number to -1 to skip the call, and
		// since Linux 4.8 the filter sees that number.
		list = push(list, ^uint32(0), deflt)
	}
	return list
}

// push appends an interval, unless the one before goes on.
func push(list []segment, start uint32, t target) []segment {
	if n := len(list); n > 0 {
		switch {
		case list[n-1].start == start:
			list = list[:n-1]
			if n > 1 && list[n-2].target == t {
				return list
			}
		case list[n-1].target == t:
			return list
		}
	}
	return append(list, segment{start, t})
}

// push appends the intervals of the calls that have rules. Where ENOSYS
// follows the last named call (not lenient), nothing beyond it is reached: a
// number that is only used for a multiplexed call is not a named one, to runc.
func (c *calls) push(list []segment, deflt target, lenient bool) []segment {
	for code := range c.slots {
		s := &c.slots[code]
		if s.tree == 0 {
			continue
		}
		nr := c.arch.number(uint16(code))
		if !lenient && c.last != 0 && nr > c.last {
			continue
		}
		t := target{action: s.action}
		if s.tree != always {
			t = target{tree: &c.trees[s.tree-1]}
		}
		list = push(list, nr, t)
		list = push(list, nr+1, deflt)
	}
	return list
}
