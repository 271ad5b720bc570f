package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// namedErrnos is one more than the largest errno with a name, on any
// architecture, with room to spare.
const namedErrnos = 200

// operand reads one operand.
func (d *decoder) operand(f operand) (arg, error) {
	switch f.form() {
	case fFD, fSlot:
		return d.fd(f)
	case fStr:
		s, err := d.quoted()
		return d.b.str(s), err
	case fBytes:
		s, err := d.quoted()
		return d.b.bytes([]byte(s)), err
	case fFlags:
		v, err := d.flags(*f.names())
		return num(v), err
	case fEnum:
		v, err := d.enum(f)
		return num(v), err
	case fInt:
		w := d.word()
		v, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return arg{}, fmt.Errorf("%.40q is not a number", w)
		}
		return num(uint64(v)), nil
	case fUint:
		if d.skip("max") {
			return num(^uint64(0)), nil
		}
		v, err := d.uint(10)
		return num(v), err
	case fOct:
		v, err := d.uint(8)
		return num(v), err
	case fHex:
		if !d.skip("0x") {
			return arg{}, errors.New("missing 0x")
		}
		v, err := d.uint(16)
		return num(v), err
	case fBuf:
		return d.buf()
	case fIDs:
		return d.ids()
	case fArgv:
		return d.vector("argv", false)
	case fEnv:
		return d.env()
	case fFilter:
		return d.filter()
	}
	return arg{}, errors.New("unknown form")
}

// fd reads "cwd", "none", "s0", "fd=name" or "fd=name(7)".
func (d *decoder) fd(f operand) (arg, error) {
	if f == fFD && d.skip("fd=") {
		name, err := d.name()
		if err != nil {
			return arg{}, err
		}
		if !d.skip("(") {
			d.withhold("descriptor numbers")
			return d.b.fd(Num(unresolved, name)), nil
		}
		w := d.word()
		n, err := strconv.ParseInt(w, 10, 32)
		if err != nil || n == unresolved || !d.skip(")") {
			return arg{}, fmt.Errorf("descriptor %.40q has no good number", name)
		}
		return d.b.fd(Num(int(n), name)), nil
	}
	if f == fFD && d.skip(Cwd.name) {
		return d.b.fd(Cwd), nil
	}
	if f == fFD && d.skip(noFD.name) {
		return d.b.fd(noFD), nil
	}
	if !d.skip("s") {
		return arg{}, errors.New("neither descriptor nor slot")
	}
	n, err := d.uint(10)
	if err != nil {
		return arg{}, err
	}
	return d.b.fd(Slot(min(n, maxSteps)).FD()), nil
}

// name reads the name of a descriptor, in quotes or without.
func (d *decoder) name() (string, error) {
	if strings.HasPrefix(d.s, `"`) {
		return d.quoted()
	}
	return d.word(), nil
}

func (d *decoder) withhold(what string) {
	if d.withheld == "" {
		d.withheld = what
	}
}

func (d *decoder) quoted() (string, error) {
	if !strings.HasPrefix(d.s, `"`) {
		return "", errors.New("missing quote")
	}
	q, err := strconv.QuotedPrefix(d.s)
	if err != nil {
		return "", errors.New("bad quoted string")
	}
	d.s = d.s[len(q):]
	s, err := strconv.Unquote(q)
	if err != nil {
		return "", errors.New("bad quoted string")
	}
	return s, nil
}

func (d *decoder) flags(n names) (uint64, error) {
	var v uint64
	for {
		w := d.word()
		bit, err := lookupFlag(n, w)
		if err != nil {
			return 0, err
		}
		v |= bit
		if !d.skip("|") {
			return v, nil
		}
	}
}

func lookupFlag(n names, w string) (uint64, error) {
	for _, e := range n {
		if e.text == w {
			return e.val, nil
		}
	}
	v, err := strconv.ParseUint(w, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("unknown flag %.40q", w)
	}
	return v, nil
}

func (d *decoder) enum(f operand) (uint64, error) {
	w := d.word()
	if w != "" && w[0] >= '0' && w[0] <= '9' {
		v, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%.40q is not a number", w)
		}
		return v, nil
	}
	switch f {
	case fEnum + tErrno:
		for e := range uint64(namedErrnos) {
			if w != "" && unix.ErrnoName(unix.Errno(e)) == w {
				return e, nil
			}
		}
	case fEnum + tSignal:
		if v := unix.SignalNum(w); v > 0 {
			return uint64(v), nil
		}
	default:
		for _, e := range *f.names() {
			if e.text == w {
				return e.val, nil
			}
		}
	}
	return 0, fmt.Errorf("unknown name %.40q", w)
}

// buf reads "b0" or "b0+8". Whether what is used fits is checked by add.
func (d *decoder) buf() (arg, error) {
	if !d.skip("b") {
		return arg{}, errors.New("not a buffer")
	}
	n, err := d.uint(10)
	if err != nil {
		return arg{}, err
	}
	var off uint64
	if d.skip("+") {
		if off, err = d.uint(10); err != nil {
			return arg{}, err
		}
	}
	return d.b.buf(Buf(min(n, maxBuffers)), int(min(off, maxBuffers))), nil
}

func (d *decoder) ids() (arg, error) {
	if !d.skip("[") {
		return arg{}, errors.New("missing [")
	}
	var ids []uint32
	for !d.skip("]") {
		if len(ids) > 0 && !d.skip(" ") {
			return arg{}, errors.New("missing ]")
		}
		v, err := d.uint(10)
		if err != nil {
			return arg{}, err
		}
		if v > 1<<32-1 {
			return arg{}, fmt.Errorf("%d is no id", v)
		}
		ids = append(ids, uint32(v))
	}
	return d.b.ids(ids), nil
}

// vector reads `["a" "b"]`; with env, entries may be withheld: `["A="…]`.
func (d *decoder) vector(what string, env bool) (arg, error) {
	if !d.skip("[") {
		return arg{}, errors.New("missing [")
	}
	var list []string
	hidden := 0
	for !d.skip("]") {
		if len(list) > 0 && !d.skip(" ") {
			return arg{}, errors.New("missing ]")
		}
		s, err := d.quoted()
		if err != nil {
			return arg{}, err
		}
		if env && d.skip("…") {
			hidden++
			if i := strings.IndexByte(s, '='); i != len(s)-1 {
				return arg{}, errors.New("a withheld variable has a value")
			}
		}
		list = append(list, s)
	}
	a := d.b.vec(what, list)
	if hidden > 0 {
		if hidden != len(list) {
			return arg{}, errors.New("some variables are withheld, some are not")
		}
		a.hidden = true
		d.withhold("values of environment variables")
	}
	return a, nil
}

func (d *decoder) env() (arg, error) {
	if !d.skip("env(") {
		return arg{}, errors.New("missing env(")
	}
	n, err := d.uint(10)
	if err != nil {
		return arg{}, err
	}
	if !d.skip(")") {
		return arg{}, errors.New("missing )")
	}
	a, err := d.vector("env", true)
	if err == nil && uint64(a.aux) != n {
		return arg{}, fmt.Errorf("env(%d) has %d entries", n, a.aux)
	}
	return a, err
}

// filter reads "filter(3)", which withholds the instructions, or
// "filter(3):" and 16 hexadecimal digits for each.
func (d *decoder) filter() (arg, error) {
	if !d.skip("filter(") {
		return arg{}, errors.New("missing filter(")
	}
	n, err := d.uint(10)
	if err != nil {
		return arg{}, err
	}
	if !d.skip(")") || n > maxFilter {
		return arg{}, fmt.Errorf("bad filter of %d instructions", n)
	}
	if !d.skip(":") {
		d.withhold("filters")
		return arg{kind: argData, hidden: true, aux: uint32(n * 8)}, nil
	}
	digits := d.word()
	if uint64(len(digits)) != n*16 {
		return arg{}, fmt.Errorf("filter(%d) has %d digits", n, len(digits))
	}
	filter := make([]unix.SockFilter, n)
	for i := range filter {
		v, err := strconv.ParseUint(digits[i*16:i*16+16], 16, 64)
		if err != nil {
			return arg{}, errors.New("bad digits in a filter")
		}
		filter[i] = unix.SockFilter{Code: uint16(v >> 48), Jt: uint8(v >> 40), Jf: uint8(v >> 32), K: uint32(v)}
	}
	return d.b.filter(filter), nil
}
