package plan

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Builder collects the steps of a plan. Its methods append one step each; the
// modifiers (Tolerate, OnError, OnSuccess, OnZero, Want, Into) change the step
// that was appended last. Mistakes are collected and reported by Plan.
//
// All strings, buffers and structures are copied: the caller may change them
// afterwards. Descriptors are borrowed and must stay open until Fork returns.
//
// A Builder is used by one goroutine and makes one plan.
type Builder struct {
	p      *Plan
	labels []int32 // step of each label, -1 until placed
	filled []bool  // slots that some step fills
	errs   []error
	done   bool

	bufBytes int // size of all buffers
}

// NewBuilder returns an empty builder.
func NewBuilder() *Builder {
	return &Builder{p: newPlan()}
}

// About says what the steps that follow are for, in the words of whoever asked
// for them, such as "mounts[3] (/data)": a StepError repeats it. "" ends it. It
// is no part of the printed plan.
func (b *Builder) About(text string) {
	b.p.about = append(b.p.about, subject{len(b.p.ops), text})
}

// NewSlot returns a slot for Into: two steps of which only one runs may fill
// the same slot.
func (b *Builder) NewSlot() Slot {
	if b.p.slots == maxSteps {
		b.fail("NewSlot: more than %d slots", maxSteps)
		return 0
	}
	b.p.slots++
	b.filled = append(b.filled, false)
	return Slot(b.p.slots - 1)
}

// NewBuf returns a buffer of n bytes, aligned to 8.
func (b *Builder) NewBuf(n int) Buf {
	if n <= 0 || n > maxBuffers-b.bufBytes {
		b.fail("NewBuf: size %d is not positive or exceeds %d bytes with the other buffers", n, maxBuffers)
		n = 8
	}
	b.bufBytes += n
	b.p.bufs = append(b.p.bufs, uint32(n))
	return Buf(len(b.p.bufs) - 1)
}

// NewLabel returns a label to jump to. It must be placed after the jumps.
func (b *Builder) NewLabel() Label {
	if len(b.labels) == maxSteps {
		b.fail("NewLabel: more than %d labels", maxSteps)
		return 0
	}
	b.labels = append(b.labels, -1)
	return Label(len(b.labels) - 1)
}

// Place makes l stand for the next step that is appended.
func (b *Builder) Place(l Label) {
	switch {
	case l < 0 || int(l) >= len(b.labels):
		b.fail("Place: label %d does not belong to this builder", l)
	case b.labels[l] >= 0:
		b.fail("Place: label %d is placed twice", l)
	default:
		b.labels[l] = int32(len(b.p.ops))
	}
}

// Tolerate lets the plan go on with the next step when the last one fails with
// one of errs. There may be up to 8 errnos on a step, OnError's included.
func (b *Builder) Tolerate(errs ...unix.Errno) {
	b.addRules("Tolerate", nextStep, errs)
}

// OnError makes the last step jump to l when it fails with one of errs.
func (b *Builder) OnError(l Label, errs ...unix.Errno) {
	if !b.labelOK("OnError", l) {
		return
	}
	b.addRules("OnError", uint16(l), errs)
}

// OnSuccess makes the last step jump to l when it succeeds.
func (b *Builder) OnSuccess(l Label) {
	if o := b.last("OnSuccess"); o != nil && b.labelOK("OnSuccess", l) {
		o.ok = int32(l)
	}
}

// OnZero makes the last step jump to l when its result is 0: the child side of
// Clone, the end of a file.
func (b *Builder) OnZero(l Label) {
	if o := b.last("OnZero"); o != nil && b.labelOK("OnZero", l) {
		o.zero = int32(l)
	}
}

// Want makes every result of the last step other than n fail it with EPROTO.
// Steps that write want their whole data written without being told.
func (b *Builder) Want(n uintptr) {
	if o := b.last("Want"); o != nil {
		o.hasWant, o.want = true, uint64(n)
	}
}

// Into puts the result of the last step into s instead of a slot of its own.
func (b *Builder) Into(s Slot) {
	o := b.last("Into")
	if o == nil {
		return
	}
	if s < 0 || int(s) >= b.p.slots {
		b.fail("Into: slot %d does not belong to this builder", s)
		return
	}
	if specs[o.kind].pseudo {
		b.fail("Into: %s has no result", specs[o.kind].name)
		return
	}
	o.out = int32(s)
	b.filled[s] = true
}

// Result puts the result of the last step into a new slot, for the calls that
// have none by default, and returns it.
func (b *Builder) Result() Slot {
	s := b.NewSlot()
	b.Into(s)
	return s
}

func (b *Builder) labelOK(where string, l Label) bool {
	if l < 0 || int(l) >= len(b.labels) {
		b.fail("%s: label %d does not belong to this builder", where, l)
		return false
	}
	if b.labels[l] >= 0 {
		b.fail("%s: label %d lies behind; jumps go forward", where, l)
		return false
	}
	return true
}

func (b *Builder) last(where string) *op {
	if len(b.p.ops) == 0 {
		b.fail("%s: there is no step yet", where)
		return nil
	}
	return &b.p.ops[len(b.p.ops)-1]
}

func (b *Builder) addRules(where string, to uint16, errs []unix.Errno) {
	o := b.last(where)
	if o == nil {
		return
	}
	for _, e := range errs {
		if e == 0 || e > maxErrno {
			b.fail("%s: errno %d is out of range", where, uint(e))
			continue
		}
		i := 0
		for i < maxRules && o.rules[i].errno != 0 && o.rules[i].errno != uint16(e) {
			i++
		}
		switch {
		case i == maxRules:
			b.fail("%s: more than %d errnos", where, maxRules)
			return
		case o.rules[i].errno != 0:
			b.fail("%s: %v is named twice", where, e)
		default:
			o.rules[i] = rule{errno: uint16(e), to: to}
		}
	}
}

// fail records a mistake. It names the step that is being built, because the
// caller gets the mistakes of a whole plan at once.
func (b *Builder) fail(format string, args ...any) {
	if len(b.errs) < 20 {
		b.errs = append(b.errs, fmt.Errorf("step %d: "+format, append([]any{len(b.p.ops)}, args...)...))
	}
}

// add appends a step.
func (b *Builder) add(k kind, args ...arg) {
	if b.done {
		b.fail("the plan was built already")
		return
	}
	b.p.ops = append(b.p.ops, op{
		kind: k, nargs: uint8(len(args)), first: uint32(len(b.p.args)),
		out: -1, ok: -1, zero: -1,
	})
	b.p.args = append(b.p.args, args...)
	if check := specs[k].check; check != nil {
		// The copy, so that args need not escape.
		check(b, b.p.args[len(b.p.args)-len(args):])
	}
}

// addSlot appends a step whose result goes to a new slot.
func (b *Builder) addSlot(k kind, args ...arg) Slot {
	b.add(k, args...)
	return b.Result()
}

// Plan compiles the steps. The error holds everything that is wrong with them.
// The builder cannot be used again.
func (b *Builder) Plan() (*Plan, error) {
	if b.done {
		b.fail("the plan was built already")
	}
	b.done = true
	b.resolveLabels()
	b.checkEnd()
	if len(b.p.data) > math.MaxInt32 {
		b.fail("strings and data exceed 2 GiB")
	}
	if len(b.errs) > 0 {
		return nil, fmt.Errorf("build plan: %w", errors.Join(b.errs...))
	}
	p := b.p
	if err := p.compile(); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return p, nil
}

// resolveLabels replaces labels by the steps that they stand for.
func (b *Builder) resolveLabels() {
	step := func(i int, l int32) int32 {
		if l < 0 {
			return -1
		}
		to := b.labels[l]
		if to < 0 || int(to) >= len(b.p.ops) {
			b.errs = append(b.errs, fmt.Errorf("step %d: label %d is not placed before a step", i, l))
			return -1
		}
		return to
	}
	for i := range b.p.ops {
		o := &b.p.ops[i]
		o.ok, o.zero = step(i, o.ok), step(i, o.zero)
		for j := range o.rules {
			if r := &o.rules[j]; r.errno != 0 && r.to != nextStep {
				r.to = uint16(step(i, int32(r.to)))
			}
		}
	}
}

// checkEnd makes sure that the last step is one that does not return: nothing
// may follow the plan in the child.
func (b *Builder) checkEnd() {
	n := len(b.p.ops)
	switch {
	case n == 0:
		b.errs = append(b.errs, errors.New("there are no steps"))
	case n > maxSteps:
		b.errs = append(b.errs, fmt.Errorf("%d steps exceed the limit of %d", n, maxSteps))
	case !specs[b.p.ops[n-1].kind].last:
		b.errs = append(b.errs, errors.New("the last step is neither execve nor exit"))
	}
}
