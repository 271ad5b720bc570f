package nodeconf

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func mask(v uint64) *uint64 { return &v }

func bit(name string) (int, bool) {
	n, ok := map[string]int{"CAP_CHOWN": 0, "KILL": 5}[name]
	return n, ok
}

func TestParseTakesMasksAndNames(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Config
		err  string
	}{
		{"", Config{}, ""},
		{"# nothing\n\n", Config{}, ""},
		{`controlled_userns_caps = "1f,ffffffff"`, Config{ControlledCaps: mask(0x1fffffffff)}, ""},
		{`controlled_userns_caps = "3" # two`, Config{ControlledCaps: mask(3)}, ""},
		{`controlled_userns_caps = ["CAP_CHOWN", 'KILL',]`, Config{ControlledCaps: mask(1<<0 | 1<<5)}, ""},
		{`controlled_userns_caps = []`, Config{ControlledCaps: mask(0)}, ""},
		{"controlled_containers = \"all\"\ncontrolled_userns_caps='0'", Config{ControlAll: true, ControlledCaps: mask(0)}, ""},
		{`controlled_containers = "some"`, Config{}, "controlled_containers"},
		{`controlled_userns_caps = "1f,fff"`, Config{}, "controlled_userns_caps"},
		{`controlled_userns_caps = "1,2,3"`, Config{}, "64 bits"},
		{`controlled_userns_caps = "x"`, Config{}, "hexadecimal"},
		{`controlled_userns_caps = ["KILL" "KILL"]`, Config{}, "array"},
		{`controlled_userns_caps = ["CAP_X"]`, Config{}, `capability "CAP_X"`},
		{`controlled_userns_caps = "1" 2`, Config{}, "follows"},
		{`nonsense = "1"`, Config{}, "nonsense: unknown key"},
		{`NoNewKeyring = true`, Config{Options: Options{NoNewKeyring: true}}, ""},
		{`NoNewKeyring = "true"`, Config{}, "NoNewKeyring"},
		{"ShimCgroup = \"/shims\"\nIoUid = 5 # five\nIoGid=6", Config{Options: Options{ShimCgroup: "/shims", IoUid: 5, IoGid: 6}}, ""},
		{`IoUid = -1`, Config{}, "IoUid"},
		{`IoGid = 4294967296`, Config{}, "IoGid"},
		{`ExecTreeKill = true`, Config{Options: Options{ExecTreeKill: true}}, ""},
		{`ExecTreeKill = 1`, Config{}, "true or false"},
		{"LogOverflow = \"drop\"\nLogSpool = 4096", Config{Options: Options{LogOverflow: "drop", LogSpool: 4096}}, ""},
		{`LogOverflow = "lose"`, Config{}, "LogOverflow"},
		{`LogSpool = -1`, Config{}, "LogSpool"},
		{`LogSpool = 999999999999`, Config{}, "at most"},
		{`allow_unsealed = true`, Config{}, ""},
		{`allow_unsealed = false`, Config{RequireSealed: true}, ""},
		{`NoPivotRoot = true`, Config{}, "NoPivotRoot"},
		{`nonsense`, Config{}, "KEY = VALUE"},
	} {
		got, err := Parse(tt.text, bit)
		if tt.err == "" && (err != nil || !reflect.DeepEqual(got, tt.want)) {
			t.Errorf("%q: %+v %v", tt.text, got, err)
		}
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: error %v, want %q in it", tt.text, err, tt.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", `controlled_userns_caps = "1f,ffffffff"`, `a=["b",`, `a='`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Parse(s, bit)
		if err != nil && !reflect.DeepEqual(c, Config{}) {
			t.Errorf("a configuration beside an error: %+v", c)
		}
	})
}

func TestAFileIsFollowedAndABadOneChangesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: the directory must be root's")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "config.toml")
	f := Open(name, bit)
	step := func(text string, mask uint64, bad bool) {
		t.Helper()
		if text != "" {
			tmp := name + ".new"
			if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(tmp, name); err != nil {
				t.Fatal(err)
			}
		}
		c, err := f.Get()
		if (err != nil) != bad {
			t.Errorf("%q: error %v", text, err)
		}
		if mask == 0 != (c.ControlledCaps == nil) || c.ControlledCaps != nil && *c.ControlledCaps != mask {
			t.Errorf("%q: %+v", text, c.ControlledCaps)
		}
	}
	step("", 0, false)
	step(`controlled_userns_caps = "5"`, 5, false)
	step("", 5, false)
	step(`controlled_userns_caps = "6"`, 6, false)
	step(`controlled_userns_caps = `, 6, true)
	step("", 6, true)
	step(`controlled_userns_caps = "7"`, 7, false)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	step("", 0, false)
}
