// Package ocijson decodes JSON into the structures of the OCI specification, with
// the same result as encoding/json and without what that keeps: it makes tables
// for encoding and decoding of each type that it meets, 230 KiB for a whole
// configuration, which stay as long as the program. A shim decodes one or two.
//
// Here the names of the fields are read from their tags once for each decoding,
// and none of it stays. What does not occur in the specification (other
// map keys than strings, fields of interface types, escapes in strings) is left
// to encoding/json.
package ocijson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep values may lie in each other. A configuration has
// eight levels.
const maxDepth = 200

// Unmarshal decodes data into what v points to, as json.Unmarshal does. It ends
// at the first error; v is undefined then.
func Unmarshal(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("decode into %T: not a pointer", v)
	}
	d := decoder{data: data}
	err := d.value(p.Elem(), 0)
	if err == nil {
		if d.space(); d.at < len(d.data) {
			err = d.syntax("something follows")
		}
	}
	return err
}

// decoder is at a place in the text.
type decoder struct {
	data  []byte
	at    int
	names map[reflect.Type][]string // of the fields of structures, see fieldNames
}

// TypeError says that a value does not fit its field.
type TypeError struct {
	Field string // as in process.user.uid
	Value string // what stands there
	Type  reflect.Type
}

func (e *TypeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s where %v is expected", e.Value, e.Type)
	}
	return fmt.Sprintf("%s: %s where %v is expected", e.Field, e.Value, e.Type)
}

// below puts the name of the outer field before an error's.
func below(name string, err error) error {
	var e *TypeError
	if errors.As(err, &e) {
		if e.Field != "" && e.Field[0] != '[' {
			name += "."
		}
		e.Field = name + e.Field
	}
	return err
}

func (d *decoder) syntax(what string) error {
	return fmt.Errorf("byte %d: %s", d.at, what)
}

func (d *decoder) space() {
	for d.at < len(d.data) {
		switch d.data[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek is the next byte that is no space, 0 at the end.
func (d *decoder) peek() byte {
	d.space()
	if d.at == len(d.data) {
		return 0
	}
	return d.data[d.at]
}

// value decodes what comes next. An invalid v has it checked only.
func (d *decoder) value(v reflect.Value, depth int) error {
	if depth > maxDepth {
		return d.syntax("too deep")
	}
	c := d.peek()
	if c == 'n' {
		if err := d.word("null"); err != nil || !v.IsValid() {
			return err
		}
		switch v.Kind() {
		case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice:
			v.SetZero()
		}
		return nil
	}
	for v.IsValid() && v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if v.IsValid() && v.Kind() == reflect.Interface {
		return d.foreign(v, depth)
	}
	switch c {
	case '{':
		return d.object(v, depth)
	case '[':
		return d.array(v, depth)
	case '"':
		return d.text(v)
	case 't':
		return d.boolean(v, "true", true)
	case 'f':
		return d.boolean(v, "false", false)
	case 0:
		return d.syntax("the text ends early")
	}
	return d.number(v)
}

// foreign leaves a value to encoding/json.
func (d *decoder) foreign(v reflect.Value, depth int) error {
	from := d.at
	if err := d.value(reflect.Value{}, depth); err != nil {
		return err
	}
	return json.Unmarshal(d.data[from:d.at], v.Addr().Interface())
}

func (d *decoder) word(w string) error {
	if !strings.HasPrefix(string(d.data[d.at:min(d.at+len(w), len(d.data))]), w) {
		return d.syntax("not a value")
	}
	d.at += len(w)
	return nil
}

func (d *decoder) boolean(v reflect.Value, w string, b bool) error {
	if err := d.word(w); err != nil || !v.IsValid() {
		return err
	}
	if v.Kind() != reflect.Bool {
		return &TypeError{Value: w, Type: v.Type()}
	}
	v.SetBool(b)
	return nil
}

func (d *decoder) object(v reflect.Value, depth int) error {
	if v.IsValid() {
		switch {
		case v.Kind() == reflect.Struct:
		case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
			if v.IsNil() {
				v.Set(reflect.MakeMap(v.Type()))
			}
		case v.Kind() == reflect.Map:
			return d.foreign(v, depth)
		default:
			return &TypeError{Value: "object", Type: v.Type()}
		}
	}
	d.at++
	if d.peek() == '}' {
		d.at++
		return nil
	}
	for {
		if d.peek() != '"' {
			return d.syntax("no name of a field")
		}
		key, err := d.quoted()
		if err != nil {
			return err
		}
		if d.peek() != ':' {
			return d.syntax("no colon")
		}
		d.at++
		if err := d.member(v, key, depth); err != nil {
			return err
		}
		switch d.peek() {
		case ',':
			d.at++
		case '}':
			d.at++
			return nil
		default:
			return d.syntax("neither comma nor brace")
		}
	}
}

// member decodes the value of a key of v.
func (d *decoder) member(v reflect.Value, key []byte, depth int) error {
	if !v.IsValid() {
		return d.value(v, depth+1)
	}
	if v.Kind() == reflect.Struct {
		f := d.field(v, key)
		if err := d.value(f, depth+1); err != nil {
			return below(string(key), err)
		}
		return nil
	}
	e := reflect.New(v.Type().Elem()).Elem()
	if err := d.value(e, depth+1); err != nil {
		return below(string(key), err)
	}
	v.SetMapIndex(reflect.ValueOf(string(key)).Convert(v.Type().Key()), e)
	return nil
}

// field finds the field for a key: one of the very name before one that differs
// in case. It is invalid if there is none.
func (d *decoder) field(v reflect.Value, key []byte) reflect.Value {
	f := d.search(v, key, false)
	if !f.IsValid() {
		f = d.search(v, key, true)
	}
	return f
}

// search looks through the fields of a structure, then through those of what it
// embeds.
func (d *decoder) search(v reflect.Value, key []byte, fold bool) reflect.Value {
	names := d.fieldNames(v.Type())
	embeds := false
	for i, name := range names {
		switch {
		case name == embedded:
			embeds = true
		case name == none:
		case name == string(key) || (fold && strings.EqualFold(name, string(key))):
			return v.Field(i)
		}
	}
	for i := 0; embeds && i < len(names); i++ {
		if names[i] == embedded {
			if f := d.search(v.Field(i), key, fold); f.IsValid() {
				return f
			}
		}
	}
	return reflect.Value{}
}

// What stands for the name of a field that has none.
const (
	none     = "\x00"
	embedded = "\x01"
)

// fieldNames has the names of a structure's fields in JSON.
func (d *decoder) fieldNames(t reflect.Type) []string {
	if names, ok := d.names[t]; ok {
		return names
	}
	names := make([]string, t.NumField())
	for i := range names {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct:
			name = embedded
		case !f.IsExported() || tag == "-":
			name = none
		case name == "":
			name = f.Name
		}
		names[i] = name
	}
	if d.names == nil {
		d.names = map[reflect.Type][]string{}
	}
	d.names[t] = names
	return names
}

func (d *decoder) array(v reflect.Value, depth int) error {
	if v.IsValid() && v.Kind() != reflect.Slice {
		if v.Kind() == reflect.Array {
			return d.foreign(v, depth)
		}
		return &TypeError{Value: "list", Type: v.Type()}
	}
	d.at++
	n := 0
	if d.peek() == ']' {
		d.at++
		if v.IsValid() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
		return nil
	}
	for {
		if err := d.value(element(v, n), depth+1); err != nil {
			return below("["+strconv.Itoa(n)+"]", err)
		}
		n++
		switch d.peek() {
		case ',':
			d.at++
		case ']':
			d.at++
			if v.IsValid() {
				v.SetLen(n)
			}
			return nil
		default:
			return d.syntax("neither comma nor bracket")
		}
	}
}

// element is element n of a slice, made if need be. A list that comes twice is
// decoded over the first one, as encoding/json has it.
func element(v reflect.Value, n int) reflect.Value {
	if !v.IsValid() {
		return v
	}
	if n >= v.Cap() {
		v.Grow(1)
	}
	if n >= v.Len() {
		v.SetLen(n + 1)
	}
	return v.Index(n)
}

func (d *decoder) text(v reflect.Value) error {
	from := d.at
	s, err := d.quoted()
	if err != nil || !v.IsValid() {
		return err
	}
	switch {
	case v.Kind() == reflect.String && v.Type() != reflect.TypeFor[json.Number]():
		v.SetString(string(s))
		return nil
	case v.Kind() == reflect.String, v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return json.Unmarshal(d.data[from:d.at], v.Addr().Interface())
	}
	return &TypeError{Value: "string", Type: v.Type()}
}

// quoted reads a string. It is a part of the text, unless that has escapes.
func (d *decoder) quoted() ([]byte, error) {
	from := d.at
	plain := true
	for i := from + 1; i < len(d.data); i++ {
		switch c := d.data[i]; {
		case c == '\\':
			plain = false
			i++
		case c == '"':
			d.at = i + 1
			s := d.data[from+1 : i]
			if plain && utf8.Valid(s) {
				return s, nil
			}
			var text string
			if err := json.Unmarshal(d.data[from:d.at], &text); err != nil {
				return nil, fmt.Errorf("byte %d: %w", from, err)
			}
			return []byte(text), nil
		case c < ' ':
			return nil, d.syntax("control character in a string")
		}
	}
	return nil, d.syntax("the text ends within a string")
}

func (d *decoder) number(v reflect.Value) error {
	from := d.at
	for d.at < len(d.data) && strings.IndexByte("+-.0123456789eE", d.data[d.at]) >= 0 {
		d.at++
	}
	s := string(d.data[from:d.at])
	if !isNumber(s) {
		d.at = from
		return d.syntax("not a value")
	}
	if !v.IsValid() {
		return nil
	}
	bad := &TypeError{Value: "number " + s, Type: v.Type()}
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v.OverflowInt(n) {
			return bad
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || v.OverflowUint(n) {
			return bad
		}
		v.SetUint(n)
	case reflect.String:
		if v.Type() != reflect.TypeFor[json.Number]() {
			return bad
		}
		return json.Unmarshal(d.data[from:d.at], v.Addr().Interface())
	case reflect.Float32, reflect.Float64:
		return json.Unmarshal(d.data[from:d.at], v.Addr().Interface())
	default:
		return bad
	}
	return nil
}

// isNumber tells whether s is a number as JSON writes it (RFC 8259, 6).
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	digits := func() bool {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n > 0
	}
	zero := strings.HasPrefix(s, "0")
	if zero {
		s = s[1:]
	} else if !digits() {
		return false
	}
	if strings.HasPrefix(s, ".") {
		if s = s[1:]; !digits() {
			return false
		}
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		if !digits() {
			return false
		}
	}
	return s == ""
}
