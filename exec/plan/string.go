package plan

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// String prints the plan, one step a line, for golden files and logs. It shows
// neither numbers of descriptors, which change from run to run, nor values of
// environment variables, which may be secrets, nor the text of filters. Parse
// reads it, but the result does not run.
func (p *Plan) String() string { return p.text(printer{p: p}) }

// Text is String with everything that String leaves out. Parse makes the same
// plan of it.
func (p *Plan) Text() string { return p.text(printer{p: p, full: true}) }

// Explain prints the plan for people: a line before the steps of each subject says
// what they are for, and long strings are cut unless full is set, which shows what
// Text shows. Parse does not read it.
func (p *Plan) Explain(full bool) string {
	w := printer{p: p, full: full}
	if !full {
		w.cut = maxErrorString
	}
	w.str("plan ")
	w.count(len(p.ops), "step")
	w.str("\n")
	before := ""
	for i := range p.ops {
		if of := p.aboutStep(i); of != before {
			w.str(strings.TrimRight("# "+of, " ") + "\n")
			before = of
		}
		w.line(i)
	}
	return string(w.out)
}

// Lengths in bytes to which a StepError cuts strings, and the whole step.
const (
	maxErrorString = 80
	maxErrorStep   = 400
)

// stepText is step i as a StepError shows it: without what comes after it.
func (p *Plan) stepText(i int) string {
	w := printer{p: p, cut: maxErrorString, brief: true}
	w.step(i)
	if len(w.out) > maxErrorStep {
		cut := maxErrorStep
		for !utf8.RuneStart(w.out[cut]) {
			cut--
		}
		w.out = append(w.out[:cut], "…"...)
	}
	return string(w.out)
}

func (p *Plan) text(w printer) string {
	w.out = make([]byte, 0, 64*len(p.ops)+len(p.data))
	w.header()
	for i := range p.ops {
		w.line(i)
	}
	return string(w.out)
}

// line prints step i with its number.
func (w *printer) line(i int) {
	for n := 100; n > i && n > 1; n /= 10 {
		w.out = append(w.out, ' ')
	}
	w.int(int64(i))
	w.out = append(w.out, ' ')
	w.step(i)
	w.tail(&w.p.ops[i])
	w.out = append(w.out, '\n')
}

// printer appends text to out.
type printer struct {
	p     *Plan
	out   []byte
	full  bool // show what String withholds
	cut   int  // cut strings after that many bytes, unless 0
	brief bool // leave out env, and what comes late in long lists
}

func (w *printer) str(s string) { w.out = append(w.out, s...) }
func (w *printer) int(v int64)  { w.out = strconv.AppendInt(w.out, v, 10) }

func (w *printer) uint(v uint64, base int) { w.out = strconv.AppendUint(w.out, v, base) }

// header prints what the steps refer to by number.
func (w *printer) header() {
	w.str("plan ")
	w.count(len(w.p.ops), "step")
	if w.p.slots > 0 {
		w.str(", ")
		w.count(w.p.slots, "slot")
	}
	if len(w.p.bufs) > 0 {
		w.str(", buffers")
		for _, size := range w.p.bufs {
			w.str(" ")
			w.uint(uint64(size), 10)
		}
	}
	w.str("\n")
}

func (w *printer) count(n int, what string) {
	w.int(int64(n))
	w.str(" ")
	w.str(what)
	if n != 1 {
		w.str("s")
	}
}

// step prints the name and the operands.
func (w *printer) step(i int) {
	o := &w.p.ops[i]
	sp := &specs[o.kind]
	w.str(sp.name)
	for j, a := range w.p.operands(o) {
		w.str(" ")
		w.operand(sp.forms[j], a)
	}
}

// tail prints the result's slot and what the step does other than go on.
func (w *printer) tail(o *op) {
	if o.out >= 0 {
		w.str(" -> s")
		w.int(int64(o.out))
	}
	if o.hasWant {
		w.str(" want ")
		w.uint(o.want, 10)
	}
	for i, r := range o.rules {
		if r.errno == 0 {
			break
		}
		if i == 0 {
			w.str(" ?")
		}
		w.str(" ")
		w.errno(uint64(r.errno))
		if r.to != nextStep {
			w.jump(int32(r.to))
		}
	}
	if o.zero >= 0 {
		w.str(" zero")
		w.jump(o.zero)
	}
	if o.ok >= 0 {
		w.str(" ok")
		w.jump(o.ok)
	}
}

func (w *printer) jump(to int32) {
	w.str(">")
	w.int(int64(to))
}

func (w *printer) errno(v uint64) {
	if n := unix.ErrnoName(unix.Errno(v)); n != "" {
		w.str(n)
		return
	}
	w.uint(v, 10)
}
