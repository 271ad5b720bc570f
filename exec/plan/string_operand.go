package plan

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
		if !w.brief {
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
	if w.cut > 0 && len(s) > w.cut {
		w.out = strconv.AppendQuote(w.out, string(s[:w.cut]))
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
		if w.brief && i > 4*16 {
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
		if w.brief && i == 8 {
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
