package scan

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestLineGivesEveryLineOnce(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"one line without newline", "a", []string{"a"}},
		{"one line", "a\n", []string{"a"}},
		{"empty line in the middle", "a\n\nb\n", []string{"a", "", "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for rest := []byte(tt.text); len(rest) > 0; {
				var line []byte
				line, rest = Line(rest)
				got = append(got, string(line))
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") || len(got) != len(tt.want) {
				t.Errorf("lines of %q = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestNumbersAtTheEdges(t *testing.T) {
	for _, tt := range []struct {
		text string
		want uint64
		ok   bool
	}{
		{"0", 0, true},
		{"18446744073709551615", math.MaxUint64, true},
		{"18446744073709551616", 0, false},
		{"99999999999999999999", 0, false},
		{"000000000000000000000", 0, false}, // longer than any number the kernel prints
		{"", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1 ", 0, false},
		{"0x1", 0, false},
	} {
		if v, ok := Uint([]byte(tt.text)); v != tt.want && tt.ok || ok != tt.ok {
			t.Errorf("Uint(%q) = %d, %t; want %d, %t", tt.text, v, ok, tt.want, tt.ok)
		}
	}
	if v, ok := Int([]byte("-9223372036854775808")); !ok || v != math.MinInt64 {
		t.Errorf("Int(min) = %d, %t", v, ok)
	}
	if _, ok := Int([]byte("9223372036854775808")); ok {
		t.Error("Int accepts 1<<63")
	}
	if v, ok := UintOrMax([]byte("max")); !ok || v != math.MaxUint64 {
		t.Errorf("UintOrMax(max) = %d, %t", v, ok)
	}
}

func TestHundredthsKeepsTwoDigits(t *testing.T) {
	for _, tt := range []struct {
		text string
		want uint64
		ok   bool
	}{
		{"0.00", 0, true},
		{"12.34", 1234, true},
		{"100", 10000, true},
		{"1.5", 150, true},
		{"1.", 0, false},
		{".5", 0, false},
		{"1.234", 0, false},
		{"1.-2", 0, false},
	} {
		if v, ok := Hundredths([]byte(tt.text)); ok != tt.ok || ok && v != tt.want {
			t.Errorf("Hundredths(%q) = %d, %t; want %d, %t", tt.text, v, ok, tt.want, tt.ok)
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	text := []byte("nr_periods 12\nusage max\n8:16 rbytes=1 wbytes=2\n")
	n := testing.AllocsPerRun(100, func() {
		for rest := text; len(rest) > 0; {
			var line []byte
			line, rest = Line(rest)
			KeyUint(line)
			f, more := Field(line)
			Device(f)
			f, _ = Field(more)
			Pair(f)
		}
	})
	if n != 0 {
		t.Errorf("scanning allocates %v times", n)
	}
}

func FuzzNumbersAgreeWithStrconv(f *testing.F) {
	for _, s := range []string{"0", "1", "18446744073709551615", "18446744073709551616", "-5", "max", "007", " 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := strconv.ParseUint(s, 10, 64)
		got, ok := Uint([]byte(s))
		if len(s) <= 20 && ok != (err == nil) || ok && got != want {
			t.Errorf("Uint(%q) = %d, %t; strconv says %d, %v", s, got, ok, want, err)
		}
		wantInt, err := strconv.ParseInt(s, 10, 64)
		gotInt, ok := Int([]byte(s))
		if ok && (err != nil || gotInt != wantInt) {
			t.Errorf("Int(%q) = %d; strconv says %d, %v", s, gotInt, wantInt, err)
		}
	})
}

func FuzzFieldsAgreeWithStrings(f *testing.F) {
	f.Add("a b\tc")
	f.Add("  leading and trailing  ")
	f.Fuzz(func(t *testing.T, s string) {
		want := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == '\t' })
		rest := []byte(s)
		for _, w := range want {
			var got []byte
			if got, rest = Field(rest); string(got) != w {
				t.Fatalf("field %q, want %q in %q", got, w, s)
			}
		}
		if got, _ := Field(rest); got != nil {
			t.Fatalf("an extra field %q in %q", got, s)
		}
	})
}
