package cgroups

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func rule(allow bool, typ string, major, minor int64, access string) specs.LinuxDeviceCgroup {
	return specs.LinuxDeviceCgroup{Allow: allow, Type: typ, Major: &major, Minor: &minor, Access: access}
}

func TestAnEmptyListAllowsTheDefaultDevicesOnly(t *testing.T) {
	rules, err := DeviceRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		typ          byte
		major, minor int64
		access       Access
		want         bool
	}{
		{'c', 1, 3, AccessAll, true},
		{'c', 1, 9, DevRead, true},
		{'c', 136, 17, DevRead | DevWrite, true},
		{'c', 5, 2, DevRead, true},
		{'b', 8, 0, Mknod, true}, // a node is of no use while it cannot be opened
		{'b', 8, 0, DevRead, false},
		{'c', 1, 1, DevRead, false},
		{'c', 10, 200, DevRead, false},
		{'c', 5, 1, DevRead, false},
	} {
		if got := granted(rules, tt.typ, tt.major, tt.minor, tt.access); got != tt.want {
			t.Errorf("%c %d:%d %s is %t, want %t", tt.typ, tt.major, tt.minor, tt.access, got, tt.want)
		}
	}
}

// granted is the meaning of a list: for each access the last rule that matches
// decides.
func granted(rules []DeviceRule, typ byte, major, minor int64, access Access) bool {
	for _, bit := range []Access{Mknod, DevRead, DevWrite} {
		if access&bit == 0 {
			continue
		}
		allow := false
		for _, r := range rules {
			if r.Access&bit != 0 && r.covers(DeviceID{typ, major, minor}) {
				allow = r.Allow
			}
		}
		if !allow {
			return false
		}
	}
	return true
}

// set gives what version 1 allows under s: one exception has to cover the access
// as a whole when everything is denied, and none may touch it when everything is
// allowed (match_exception and match_exception_partial, security/device_cgroup.c).
// One access at a time, the two agree with the rules.
func (s *DeviceSet) granted(typ byte, major, minor int64, access Access) bool {
	for _, e := range s.Except {
		if e.covers(DeviceID{typ, major, minor}) && e.Access&access != 0 {
			return !s.AllowAll
		}
	}
	return s.AllowAll
}

func TestASetMeansWhatItsRulesMean(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func() int64 { return []int64{-1, 1, 2}[random.IntN(3)] }
	made := 0
	for range 20000 {
		var list []specs.LinuxDeviceCgroup
		for range random.IntN(5) {
			access := []string{"r", "w", "m", "rw", "rwm", ""}[random.IntN(6)]
			if random.IntN(4) == 0 {
				list = append(list, specs.LinuxDeviceCgroup{Allow: random.IntN(2) == 0, Access: "rwm"})
			} else {
				list = append(list, rule(random.IntN(2) == 0, []string{"b", "c"}[random.IntN(2)], number(), number(), access))
			}
		}
		rules, err := DeviceRules(list)
		if err != nil {
			t.Fatal(err)
		}
		set, err := MakeDeviceSet(rules)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "cannot make an exception") {
				t.Fatal(err)
			}
			continue
		}
		made++
		for _, typ := range []byte{'b', 'c'} {
			for major := int64(1); major <= 3; major++ {
				for minor := int64(1); minor <= 3; minor++ {
					for _, a := range []Access{Mknod, DevRead, DevWrite} {
						if got, want := set.granted(typ, major, minor, a), granted(rules, typ, major, minor, a); got != want {
							t.Fatalf("%c %d:%d %s is %t, want %t by\n%v\nset %+v", typ, major, minor, a, got, want, rules, set)
						}
					}
				}
			}
		}
	}
	if made < 5000 {
		t.Errorf("only %d of the random lists could be expressed", made)
	}
}

func TestBadDeviceRulesAreRefused(t *testing.T) {
	for name, d := range map[string]specs.LinuxDeviceCgroup{
		"type":            {Type: "p"},
		"access":          {Access: "rx"},
		"number":          rule(true, "c", -2, 1, "r"),
		"large number":    rule(true, "c", 1, 1<<32, "r"),
		"number, no type": rule(true, "a", 1, 3, "r"),
	} {
		if _, err := DeviceRules([]specs.LinuxDeviceCgroup{{}, d}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "devices[1]") {
			t.Errorf("%s: %v, want ErrInvalid that names the rule", name, err)
		}
	}
}
