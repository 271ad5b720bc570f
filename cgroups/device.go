package cgroups

import (
	"fmt"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Access is what may be done with a device. The bits are those of the kernel's
// device programs, include/uapi/linux/bpf.h, BPF_DEVCG_ACC_*.
type Access uint8

// The kinds of access.
const (
	Mknod Access = 1 << iota
	DevRead
	DevWrite

	AccessAll = Mknod | DevRead | DevWrite
)

// String gives the letters, in the order in which the kernel prints them.
func (a Access) String() string {
	s := ""
	for _, x := range []struct {
		bit    Access
		letter string
	}{{DevRead, "r"}, {DevWrite, "w"}, {Mknod, "m"}} {
		if a&x.bit != 0 {
			s += x.letter
		}
	}
	return s
}

// AnyNumber is a major or minor number that matches every number.
const AnyNumber = -1

// DeviceID is a device or a class of devices.
type DeviceID struct {
	Type         byte // 'b', 'c', or 'a' for both
	Major, Minor int64
}

// String gives the form of devices.list, such as "c 1:3".
func (d DeviceID) String() string {
	return string(d.Type) + " " + number(d.Major) + ":" + number(d.Minor)
}

func number(n int64) string {
	if n == AnyNumber {
		return "*"
	}
	return strconv.FormatInt(n, 10)
}

// covers reports whether every device of e is one of d.
func (d DeviceID) covers(e DeviceID) bool {
	return (d.Type == 'a' || d.Type == e.Type) &&
		(d.Major == AnyNumber || d.Major == e.Major) &&
		(d.Minor == AnyNumber || d.Minor == e.Minor)
}

// meets reports whether some device is of both.
func (d DeviceID) meets(e DeviceID) bool {
	eq := func(a, b int64) bool { return a == AnyNumber || b == AnyNumber || a == b }
	return (d.Type == 'a' || e.Type == 'a' || d.Type == e.Type) && eq(d.Major, e.Major) && eq(d.Minor, e.Minor)
}

// DeviceRule allows or denies access to a device. In a list the last rule that
// matches decides, for each kind of access on its own.
type DeviceRule struct {
	DeviceID
	Access Access
	Allow  bool
}

// DefaultDevices are allowed in every container, whatever linux.resources says:
// making any node (a node is of no use while opening it is denied), the devices
// that config-linux.md, "Default Devices", puts in every container, and its
// terminals.
func DefaultDevices() []DeviceRule {
	allow := func(typ byte, major, minor int64, a Access) DeviceRule {
		return DeviceRule{DeviceID: DeviceID{typ, major, minor}, Access: a, Allow: true}
	}
	return []DeviceRule{
		allow('c', AnyNumber, AnyNumber, Mknod),
		allow('b', AnyNumber, AnyNumber, Mknod),
		allow('c', 1, 3, AccessAll),           // null
		allow('c', 1, 5, AccessAll),           // zero
		allow('c', 1, 7, AccessAll),           // full
		allow('c', 1, 8, AccessAll),           // random
		allow('c', 1, 9, AccessAll),           // urandom
		allow('c', 5, 0, AccessAll),           // tty
		allow('c', 5, 2, AccessAll),           // ptmx
		allow('c', 136, AnyNumber, AccessAll), // pts
	}
}

// DeviceRules turns linux.resources.devices into the rules to apply: everything
// is denied, then the list, then DefaultDevices. So an empty list allows the
// default devices and nothing else.
func DeviceRules(list []specs.LinuxDeviceCgroup) ([]DeviceRule, error) {
	rules := make([]DeviceRule, 0, 1+len(list)+10)
	rules = append(rules, DeviceRule{DeviceID: DeviceID{'a', AnyNumber, AnyNumber}, Access: AccessAll})
	for i := range list {
		r, err := deviceRule(&list[i])
		if err != nil {
			return nil, Invalid(fmt.Sprintf("devices[%d]", i), err.Error())
		}
		rules = append(rules, r)
	}
	return append(rules, DefaultDevices()...), nil
}

func deviceRule(d *specs.LinuxDeviceCgroup) (DeviceRule, error) {
	r := DeviceRule{DeviceID: DeviceID{'a', AnyNumber, AnyNumber}, Allow: d.Allow}
	switch d.Type {
	case "", "a":
	case "b":
		r.Type = 'b'
	case "c", "u":
		r.Type = 'c'
	default:
		return r, fmt.Errorf("type %q is none of a, b, c, u", d.Type)
	}
	for _, n := range []struct {
		name string
		from *int64
		to   *int64
	}{{"major", d.Major, &r.Major}, {"minor", d.Minor, &r.Minor}} {
		if n.from == nil || *n.from == AnyNumber {
			continue
		}
		if *n.from < 0 || *n.from > 1<<32-1 {
			return r, fmt.Errorf("%s %d is no device number", n.name, *n.from)
		}
		if r.Type == 'a' {
			return r, fmt.Errorf("%s %d needs a type, b or c", n.name, *n.from)
		}
		*n.to = *n.from
	}
	if d.Access == "" {
		r.Access = AccessAll
	}
	for _, c := range d.Access {
		switch c {
		case 'r':
			r.Access |= DevRead
		case 'w':
			r.Access |= DevWrite
		case 'm':
			r.Access |= Mknod
		default:
			return r, fmt.Errorf("access %q has letters other than r, w, m", d.Access)
		}
	}
	return r, nil
}

// DeviceSet is what a list of rules comes to, in the form that version 1 can
// hold: everything denied but some, or everything allowed but some.
type DeviceSet struct {
	AllowAll bool
	Except   []DeviceRule // Allow is not used; no two with the same DeviceID
}

// MakeDeviceSet works the rules out one after the other. It fails where the
// result has a hole that version 1 cannot express, such as one device denied out
// of an allowed class: the kernel would take the rules, and not deny.
func MakeDeviceSet(rules []DeviceRule) (DeviceSet, error) {
	var s DeviceSet
	for _, r := range rules {
		if err := s.apply(r); err != nil {
			return DeviceSet{}, err
		}
	}
	return s, nil
}

func (s *DeviceSet) apply(r DeviceRule) error {
	if r.Type == 'a' && r.Access == AccessAll {
		s.AllowAll, s.Except = r.Allow, nil
		return nil
	}
	if r.Allow != s.AllowAll {
		s.add(r.DeviceID, r.Access)
		return nil
	}
	kept := s.Except[:0:0]
	for _, e := range s.Except {
		switch {
		case r.covers(e.DeviceID):
			e.Access &^= r.Access
		case r.meets(e.DeviceID) && r.Access&e.Access != 0:
			return Invalid("devices", fmt.Sprintf(
				"cgroup v1 cannot make an exception of %s inside %s", r.DeviceID, e.DeviceID))
		}
		if e.Access != 0 {
			kept = append(kept, e)
		}
	}
	s.Except = kept
	return nil
}

func (s *DeviceSet) add(id DeviceID, a Access) {
	for i := range s.Except {
		if s.Except[i].DeviceID == id {
			s.Except[i].Access |= a
			return
		}
	}
	s.Except = append(s.Except, DeviceRule{DeviceID: id, Access: a})
}

// access gives what s excepts for exactly id.
func (s *DeviceSet) access(id DeviceID) Access {
	for _, e := range s.Except {
		if e.DeviceID == id {
			return e.Access
		}
	}
	return 0
}

// Minus gives the exceptions of s that t does not have.
func (s *DeviceSet) Minus(t *DeviceSet) []DeviceRule {
	var out []DeviceRule
	for _, e := range s.Except {
		if e.Access &^= t.access(e.DeviceID); e.Access != 0 {
			out = append(out, e)
		}
	}
	return out
}
