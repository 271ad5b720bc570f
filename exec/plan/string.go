package plan

import (
	"bytes"
	"math"
	"math/bits"
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

// Lengths in bytes to which a StepError cuts strings, and the whole step.
const (
	maxErrorString = 80
	maxErrorStep   = 400
)

// stepText is step i as a StepError shows it: without what comes after it.
func (p *Plan) stepText(i int) string {
	w := printer{p: p, limit: maxErrorString}
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
		for n := 100; n > i && n > 1; n /= 10 {
			w.out = append(w.out, ' ')
		}
		w.int(int64(i))
		w.out = append(w.out, ' ')
		w.step(i)
		w.tail(&p.ops[i])
		w.out = append(w.out, '\n')
	}
	return string(w.out)
}

// printer appends text to out.
type printer struct {
	p     *Plan
	out   []byte
	full  bool // show what String withholds
	limit int  // cut strings after that many bytes, and leave out env
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

func (w *printer) operand(f operand, a arg) {
	switch f.form() {
	case fFD, fSlot:
		w.fd(a)
	case fStr, fBytes:
		w.quote(w.p.data[a.val : a.val+uint64(a.aux)])
	case fFlags:
		w.flags(*f.names(), a.val)
	case fEnum:
		w.enum(f, a.val)
	case fInt:
		w.int(int64(a.val))
	case fUint:
		if a.val == math.MaxUint64 {
			w.str("max")
			return
		}
		w.uint(a.val, 10)
	case fOct:
		if a.val != 0 {
			w.str("0")
		}
		w.uint(a.val, 8)
	case fHex:
		w.str("0x")
		w.uint(a.val, 16)
	case fBuf:
		w.str("b")
		w.uint(a.val, 10)
		if a.aux != 0 {
			w.str("+")
			w.uint(uint64(a.aux), 10)
		}
	case fIDs:
		w.ids(a)
	case fArgv:
		w.vector(a, false)
	case fEnv:
		w.str("env(")
		w.uint(uint64(a.aux), 10)
		w.str(")")
		if w.limit == 0 {
			w.vector(a, !w.full || a.hidden)
		}
	case fFilter:
		w.filter(a)
	}
}

func (w *printer) fd(a arg) {
	if a.kind == argSlot {
		w.str("s")
		w.uint(a.val, 10)
		return
	}
	n, name := int64(a.val), w.p.names[a.aux]
	if int(n) == Cwd.num && name == Cwd.name || int(n) == noFD.num && name == noFD.name {
		w.str(name)
		return
	}
	w.str("fd=")
	if plainName(name) {
		w.str(name)
	} else {
		w.quote([]byte(name))
	}
	if w.full && n != unresolved {
		w.str("(")
		w.int(n)
		w.str(")")
	}
}

// plainName says whether a name needs no quotes.
func plainName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./:@", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// quote prints a Go string, which escapes newlines and whatever is not UTF-8.
func (w *printer) quote(s []byte) {
	if w.limit > 0 && len(s) > w.limit {
		w.out = strconv.AppendQuote(w.out, string(s[:w.limit]))
		w.str("…")
		return
	}
	w.out = strconv.AppendQuote(w.out, string(s))
}

func (w *printer) flags(n names, v uint64) {
	if v == 0 {
		w.str("0")
		return
	}
	sep := ""
	for _, e := range n {
		if e.val != 0 && v&e.val == e.val {
			w.str(sep)
			w.str(e.text)
			v &^= e.val
			sep = "|"
		}
	}
	if v != 0 {
		w.str(sep)
		w.str("0x")
		w.uint(v, 16)
	}
}

func (w *printer) enum(f operand, v uint64) {
	switch f {
	case fEnum + tErrno:
		w.errno(v)
		return
	case fEnum + tSignal:
		if v <= 64 {
			if s := unix.SignalName(unix.Signal(v)); s != "" {
				w.str(s)
				return
			}
		}
	default:
		for _, e := range *f.names() {
			if e.val == v {
				w.str(e.text)
				return
			}
		}
	}
	w.uint(v, 10)
}

func (w *printer) ids(a arg) {
	w.str("[")
	for i := uint64(0); i < uint64(a.aux); i += 4 {
		if i > 0 {
			w.str(" ")
		}
		if w.limit > 0 && i > 4*16 {
			w.str("…")
			break
		}
		w.uint(uint64(native.Uint32(w.p.data[a.val+i:])), 10)
	}
	w.str("]")
}

// vector prints a string vector; with hide, nothing after the first "=" of an
// entry, nor an entry without one.
func (w *printer) vector(a arg, hide bool) {
	w.str("[")
	for i := range a.aux {
		if i > 0 {
			w.str(" ")
		}
		if w.limit > 0 && i == 8 {
			w.str("…")
			break
		}
		s := w.p.cstring(w.p.offs[a.val+uint64(i)])
		if hide {
			s = s[:bytes.IndexByte(s, '=')+1]
		}
		w.quote(s)
		if hide {
			w.str("…")
		}
	}
	w.str("]")
}

// cstring returns the string at off in data, without its NUL.
func (p *Plan) cstring(off uint32) []byte {
	s := p.data[off:]
	return s[:bytes.IndexByte(s, 0)]
}

// filter prints the instructions as 16 hexadecimal digits each: code, jt, jf, k.
func (w *printer) filter(a arg) {
	w.str("filter(")
	w.uint(uint64(a.aux/8), 10)
	w.str(")")
	if !w.full || a.hidden {
		return
	}
	w.str(":")
	for i := uint64(0); i < uint64(a.aux); i += 8 {
		d := w.p.data[a.val+i:]
		v := uint64(native.Uint16(d))<<48 | uint64(d[2])<<40 | uint64(d[3])<<32 | uint64(native.Uint32(d[4:]))
		for n := bits.LeadingZeros64(v | 1); n >= 4; n -= 4 {
			w.str("0")
		}
		w.uint(v, 16)
	}
}
