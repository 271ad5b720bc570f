package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Parse reads what Text or String printed. A plan that was printed by Text is
// the same again; one that was printed by String prints the same again but
// Fork refuses it, since the text lacks what it withheld.
func Parse(text string) (*Plan, error) {
	d := decoder{b: NewBuilder(), targets: map[int]Label{}}
	if err := d.plan(text); err != nil {
		return nil, fmt.Errorf("parse plan: line %d: %w", d.line, err)
	}
	p, err := d.b.Plan()
	if err != nil {
		return nil, fmt.Errorf("parse plan: %w", err)
	}
	p.withheld = d.withheld
	return p, nil
}

// decoder reads one line at a time.
type decoder struct {
	b        *Builder
	s        string // rest of the line
	line     int
	targets  map[int]Label // labels by the step they stand for
	withheld string
}

func (d *decoder) plan(text string) error {
	d.line = 1
	head, rest, ok := strings.Cut(text, "\n")
	if !ok {
		return errors.New("the header has no end of line")
	}
	d.s = head
	steps, err := d.header()
	if err != nil {
		return err
	}
	for rest != "" {
		d.line++
		d.s, rest, ok = strings.Cut(rest, "\n")
		if !ok {
			return errors.New("the line has no end")
		}
		if err := d.step(); err != nil {
			return err
		}
		if len(d.b.errs) > 0 {
			return d.b.errs[0]
		}
	}
	if n := len(d.b.p.ops); n != steps {
		return fmt.Errorf("the header announces %d steps, there are %d", steps, n)
	}
	return nil
}

// header reads "plan 8 steps, 2 slots, buffers 64 4096".
func (d *decoder) header() (steps int, err error) {
	if !d.skip("plan ") {
		return 0, errors.New(`the header does not start with "plan "`)
	}
	if steps, err = d.count(" step"); err != nil {
		return 0, err
	}
	if d.skip(", buffers") {
		return steps, d.buffers()
	}
	if d.skip(", ") {
		slots, err := d.count(" slot")
		if err != nil {
			return 0, err
		}
		for range slots {
			d.b.NewSlot()
		}
		if d.skip(", buffers") {
			return steps, d.buffers()
		}
	}
	return steps, d.end()
}

func (d *decoder) count(what string) (int, error) {
	n, err := d.uint(10)
	if err != nil {
		return 0, err
	}
	if n > maxSteps {
		return 0, fmt.Errorf("%d exceeds the limit of %d", n, maxSteps)
	}
	if !d.skip(what) {
		return 0, fmt.Errorf("missing %q in the header", what)
	}
	if n != 1 {
		d.skip("s")
	}
	return int(n), nil
}

func (d *decoder) buffers() error {
	for d.skip(" ") {
		n, err := d.uint(10)
		if err != nil {
			return err
		}
		if n > maxBuffers {
			return fmt.Errorf("buffer of %d bytes is too large", n)
		}
		d.b.NewBuf(int(n))
	}
	return d.end()
}

func (d *decoder) end() error {
	if d.s != "" {
		return fmt.Errorf("unexpected %.40q", d.s)
	}
	return nil
}

func lookupKind(name string) (kind, error) {
	for k := range specs {
		if specs[k].name == name {
			return kind(k), nil
		}
	}
	return 0, fmt.Errorf("unknown step %.40q", name)
}

// step reads one line.
func (d *decoder) step() error {
	index := len(d.b.p.ops)
	d.s = strings.TrimLeft(d.s, " ")
	if n, err := d.uint(10); err != nil || n != uint64(index) || !d.skip(" ") {
		return fmt.Errorf("the line does not start with step number %d", index)
	}
	name := d.word()
	k, err := lookupKind(name)
	if err != nil {
		return err
	}
	if l, ok := d.targets[index]; ok {
		d.b.Place(l)
	}
	var args [maxOperands]arg
	forms := specs[k].forms
	for i, f := range forms {
		if !d.skip(" ") {
			return fmt.Errorf("%s: operand %d is missing", name, i)
		}
		a, err := d.operand(f)
		if err != nil {
			return fmt.Errorf("%s: operand %d: %w", name, i, err)
		}
		args[i] = a
	}
	d.b.add(k, args[:len(forms)]...)
	if err := d.tail(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return d.end()
}

// tail reads what follows the operands, in the printer's order.
func (d *decoder) tail() error {
	if d.skip(" -> s") {
		n, err := d.uint(10)
		if err != nil {
			return err
		}
		d.b.Into(Slot(min(n, maxSteps)))
	}
	if d.skip(" want ") {
		n, err := d.uint(10)
		if err != nil {
			return err
		}
		d.b.Want(uintptr(n))
	}
	if d.skip(" ?") {
		if err := d.rules(); err != nil {
			return err
		}
	}
	if d.skip(" zero>") {
		l, err := d.target()
		if err != nil {
			return err
		}
		d.b.OnZero(l)
	}
	if d.skip(" ok>") {
		l, err := d.target()
		if err != nil {
			return err
		}
		d.b.OnSuccess(l)
	}
	return nil
}

func (d *decoder) rules() error {
	for strings.HasPrefix(d.s, " ") && !strings.HasPrefix(d.s, " zero>") && !strings.HasPrefix(d.s, " ok>") {
		d.skip(" ")
		v, err := d.enum(fEnum + tErrno)
		if err != nil {
			return err
		}
		if !d.skip(">") {
			d.b.Tolerate(unix.Errno(v))
			continue
		}
		l, err := d.target()
		if err != nil {
			return err
		}
		d.b.OnError(l, unix.Errno(v))
	}
	return nil
}

// target reads a step number and returns a label for it.
func (d *decoder) target() (Label, error) {
	n, err := d.uint(10)
	if err != nil {
		return 0, err
	}
	if n >= maxSteps {
		return 0, fmt.Errorf("no step %d", n)
	}
	if l, ok := d.targets[int(n)]; ok {
		return l, nil
	}
	l := d.b.NewLabel()
	d.targets[int(n)] = l
	return l, nil
}

// skip consumes prefix if it is there.
func (d *decoder) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(d.s, prefix)
	d.s = rest
	return ok
}

// word consumes everything up to a blank or a delimiter.
func (d *decoder) word() string {
	i := strings.IndexAny(d.s, " ()[]>|+")
	if i < 0 {
		i = len(d.s)
	}
	w := d.s[:i]
	d.s = d.s[i:]
	return w
}

func (d *decoder) uint(base int) (uint64, error) {
	w := d.word()
	v, err := strconv.ParseUint(w, base, 64)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number", w)
	}
	return v, nil
}
