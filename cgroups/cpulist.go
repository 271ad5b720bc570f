package cgroups

import (
	"bytes"
	"math/bits"

	"github.com/ibex-run/ibex/internal/scan"
)

// maxListed bounds the numbers of a List: eight times the CPUs that the largest
// kernel configuration has (CONFIG_NR_CPUS of 8192 with MAXSMP).
const maxListed = 1 << 16

// List is a set of CPUs or memory nodes.
type List struct{ words []uint64 }

// ParseList reads the kernel's list format, such as "0-3,8". Blanks at the ends
// are skipped, an empty text is the empty set.
//
// cpuset(7), "List format". The forms with a stride ("0-10:2/4") are refused,
// because runtime-spec does not have them.
func ParseList(text string) (List, bool) {
	var l List
	rest := scan.Trim([]byte(text))
	if len(rest) == 0 {
		return l, true
	}
	for {
		part, more, found := bytes.Cut(rest, []byte{','})
		lo, hi, ranged := bytes.Cut(part, []byte{'-'})
		first, ok := scan.Uint(lo)
		last := first
		if ranged && ok {
			last, ok = scan.Uint(hi)
		}
		if !ok || last < first || last >= maxListed {
			return List{}, false
		}
		l.add(int(first), int(last))
		if !found {
			return l, true
		}
		rest = more
	}
}

func (l *List) add(first, last int) {
	for len(l.words) <= last/64 {
		l.words = append(l.words, 0)
	}
	for i := first; i <= last; i++ {
		l.words[i/64] |= 1 << (i % 64)
	}
}

// Equal reports whether both hold the same numbers.
func (l List) Equal(m List) bool {
	long, short := l.words, m.words
	if len(long) < len(short) {
		long, short = short, long
	}
	for i, w := range long {
		if i < len(short) && w != short[i] || i >= len(short) && w != 0 {
			return false
		}
	}
	return true
}

// Len counts the numbers.
func (l List) Len() int {
	n := 0
	for _, w := range l.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Has reports whether i is in the set.
func (l List) Has(i int) bool {
	return i >= 0 && i/64 < len(l.words) && l.words[i/64]>>(i%64)&1 != 0
}

// Bytes gives the set as a bit mask, the least byte first, without zero bytes at
// the end. systemd takes lists in this form.
func (l List) Bytes() []byte {
	out := make([]byte, 0, 8*len(l.words))
	for _, w := range l.words {
		for i := range 8 {
			out = append(out, byte(w>>(8*i)))
		}
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}
