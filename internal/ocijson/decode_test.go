package ocijson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// full fills every field of a value.
func full(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0), n)
		full(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		full(e, n)
		v.SetMapIndex(reflect.ValueOf("key \"é\" <&>").Convert(v.Type().Key()), e)
	case reflect.String:
		*n++
		v.SetString(strings.Repeat("té\n<", *n%4+1))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Interface:
		v.Set(reflect.ValueOf(map[string]any{"a": []any{1.5, nil}}))
	default:
		*n++
		if v.CanInt() {
			v.SetInt(int64(-*n % 100))
		} else {
			v.SetUint(uint64(*n % 100))
		}
	}
}

func TestAFullSpecificationIsDecodedAsEncodingJSONDoes(t *testing.T) {
	var in specs.Spec
	n := 0
	full(reflect.ValueOf(&in).Elem(), &n)
	for _, indent := range []string{"", "\t"} {
		text, err := json.MarshalIndent(&in, "", indent)
		if err != nil {
			t.Fatal(err)
		}
		var got, want specs.Spec
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decoded:\n%+v\nwant\n%+v", got, want)
		}
	}
}

// TestTheSpecificationHasNothingElse finds what a new version of it might bring
// that the decoder leaves out.
func TestTheSpecificationHasNothingElse(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		for _, i := range []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()} {
			if reflect.PointerTo(typ).Implements(i) {
				t.Errorf("%v is a %v", typ, i)
			}
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if _, opts, _ := strings.Cut(f.Tag.Get("json"), ","); opts != "" && opts != "omitempty" {
					t.Errorf("%v.%s has the option %s", typ, f.Name, opts)
				}
				if f.Anonymous && f.Type.Kind() != reflect.Struct {
					t.Errorf("%v embeds %v", typ, f.Type)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[specs.Spec]())
	if len(seen) < 60 {
		t.Errorf("only %d types were seen", len(seen))
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for text, want := range map[string]string{
		`{"process":{"args":["a",7]}}`:                        "process.args[1]: number 7 where string",
		`{"process":{"user":{"uid":-1}}}`:                     "process.user.uid: number -1 where uint32",
		`{"process":{"user":{"uid":4294967296}}}`:             "process.user.uid",
		`{"linux":{"resources":{"memory":{"limit":"1"}}}}`:    "linux.resources.memory.limit: string where int64",
		`{"annotations":{"a":{}}}`:                            "annotations.a: object where string",
		`{"mounts":{}}`:                                       "mounts: object where []specs.Mount",
		`{"process":{"terminal":1}}`:                          "process.terminal: number 1 where bool",
		`{"process":`:                                         "byte 11: the text ends early",
		`{} x`:                                                "byte 3: something follows",
		strings.Repeat(`{"x":`, 300) + strings.Repeat(`}`, 1): "too deep",
	} {
		var s specs.Spec
		if err := Unmarshal([]byte(text), &s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v; want %q", text, err, want)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	var in specs.Spec
	n := 0
	full(reflect.ValueOf(&in).Elem(), &n)
	text, err := json.Marshal(&in)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, s := range []string{
		`{"ociVersion":"1.0.2","process":{"terminal":true,"user":{"uid":0,"gid":0,"additionalGids":[1]},"args":["a"],"env":null}}`,
		`{"OCIVERSION":"x","Process":{"ARGS":["a"]},"process":{"args":[]},"oomScoreAdj":-1}`,
		`{"mounts":[{"destination":"/a","options":["x"]}],"mounts":[{"type":"t"},null],"mounts":[]}`,
		`{"linux":{"resources":{"blockIO":{"weightDevice":[{"major":8,"minor":0,"weight":10}]}},"sysctl":{"a":"b","a":null}}}`,
		`{"hostname":"\ud800\u0041\ud83d\ude00\n","domainname":"` + "\xff" + `","x":[1e5,-0.5,0,[],{}]}`,
		`{"windows":{"credentialSpec":{"a":[1,2,{"b":null}]}},"root":{"readonly":false}}`,
		`{"process":{"user":{"uid":1e3}}}`, `{"process":{"user":{"uid":007}}}`, `[1]`, `null`, ` {} `, `{"a":1,}`, `{"":{"":"\q"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want specs.Spec
		theirs := json.Unmarshal(text, &want)
		err := Unmarshal(text, &got)
		if (err == nil) != (theirs == nil) {
			if err != nil && strings.Contains(err.Error(), "too deep") {
				return
			}
			t.Fatalf("error %v; encoding/json: %v", err, theirs)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("decoded:\n%+v\nwant\n%+v", got, want)
		}
	})
}

func BenchmarkSpec(b *testing.B) {
	var in specs.Spec
	n := 0
	full(reflect.ValueOf(&in).Elem(), &n)
	text, err := json.Marshal(&in)
	if err != nil {
		b.Fatal(err)
	}
	// Real ones hardly have escapes.
	text = []byte(strings.NewReplacer(`\n`, "n", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\"`, "'").Replace(string(text)))
	for name, f := range map[string]func([]byte, any) error{"here": Unmarshal, "encoding-json": json.Unmarshal} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				var s specs.Spec
				if err := f(text, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
