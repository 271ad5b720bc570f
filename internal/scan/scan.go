// Package scan reads the small text files of the kernel without allocating.
//
// Every function takes bytes and gives back a part of them; nothing is copied
// and nothing is kept. A caller that wants a string makes one.
package scan

import (
	"bytes"
	"fmt"
	"math"
)

// Line cuts the first line off text. The newline is in neither part.
// At the end of text both results are nil.
func Line(text []byte) (line, rest []byte) {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i], text[i+1:]
	}
	return text, nil
}

// Field cuts the first field off line. Fields are separated by any number of
// spaces and tabs. A line without a field gives a nil field.
func Field(line []byte) (field, rest []byte) {
	i := 0
	for i < len(line) && isBlank(line[i]) {
		i++
	}
	if i == len(line) {
		return nil, nil
	}
	j := i
	for j < len(line) && !isBlank(line[j]) {
		j++
	}
	return line[i:j], line[j:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// Trim cuts spaces, tabs and newlines off both ends of text.
func Trim(text []byte) []byte {
	for len(text) > 0 && (isBlank(text[0]) || text[0] == '\n') {
		text = text[1:]
	}
	for n := len(text); n > 0 && (isBlank(text[n-1]) || text[n-1] == '\n'); n-- {
		text = text[:n-1]
	}
	return text
}

// Uint parses an unsigned decimal number that fills all of text. It refuses
// signs, blanks, an empty text and a number above 2^64-1.
func Uint(text []byte) (v uint64, ok bool) {
	if len(text) == 0 || len(text) > 20 {
		return 0, false
	}
	for _, c := range text {
		d := uint64(c - '0')
		if d > 9 {
			return 0, false
		}
		if v > math.MaxUint64/10 {
			return 0, false
		}
		v *= 10
		if v > math.MaxUint64-d {
			return 0, false
		}
		v += d
	}
	return v, true
}

// UintOrMax is Uint, and the word "max", by which cgroup files say "no limit",
// is math.MaxUint64.
func UintOrMax(text []byte) (v uint64, ok bool) {
	if string(text) == "max" {
		return math.MaxUint64, true
	}
	return Uint(text)
}

// Int parses a decimal number with an optional minus sign.
func Int(text []byte) (v int64, ok bool) {
	neg := len(text) > 0 && text[0] == '-'
	if neg {
		text = text[1:]
	}
	u, ok := Uint(text)
	switch {
	case !ok:
		return 0, false
	case neg && u <= 1<<63:
		return -int64(u), true // -(1<<63) wraps to itself, which is right
	case !neg && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// Hundredths parses a decimal number with at most two digits after the point,
// such as the "0.12" of a pressure file, and gives it times one hundred.
func Hundredths(text []byte) (v uint64, ok bool) {
	whole, frac := text, []byte(nil)
	if i := bytes.IndexByte(text, '.'); i >= 0 {
		whole, frac = text[:i], text[i+1:]
		if len(frac) == 0 || len(frac) > 2 {
			return 0, false
		}
	}
	v, ok = Uint(whole)
	if !ok || v > math.MaxUint64/100-1 {
		return 0, false
	}
	v *= 100
	if frac == nil {
		return v, true
	}
	f, ok := Uint(frac)
	if !ok {
		return 0, false
	}
	if len(frac) == 1 {
		f *= 10
	}
	return v + f, true
}

// KeyUint splits a line of the form "key 123". "max" counts as a number.
func KeyUint(line []byte) (key []byte, v uint64, ok bool) {
	key, rest := Field(line)
	val, rest := Field(rest)
	if extra, _ := Field(rest); extra != nil || key == nil {
		return nil, 0, false
	}
	v, ok = UintOrMax(val)
	return key, v, ok
}

// EachKey calls set for every line "key 123". An error names the line that is
// none. It does not keep set, so a caller's closure costs no allocation.
func EachKey(text []byte, set func(key []byte, v uint64)) error {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = Line(rest)
		key, v, ok := KeyUint(line)
		if !ok {
			return Unexpected(line)
		}
		set(key, v)
	}
	return nil
}

// Unexpected is the error for a line that does not have its file's form.
func Unexpected(line []byte) error { return fmt.Errorf("unexpected line %.100q", line) }

// Pair splits a field of the form "key=value".
func Pair(field []byte) (key, value []byte, ok bool) {
	i := bytes.IndexByte(field, '=')
	if i <= 0 {
		return nil, nil, false
	}
	return field[:i], field[i+1:], true
}

// Device splits a device number of the form "8:16".
func Device(field []byte) (major, minor uint64, ok bool) {
	i := bytes.IndexByte(field, ':')
	if i < 0 {
		return 0, 0, false
	}
	major, ok1 := Uint(field[:i])
	minor, ok2 := Uint(field[i+1:])
	return major, minor, ok1 && ok2
}
