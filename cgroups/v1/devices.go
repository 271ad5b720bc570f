package cgroup1

import (
	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
)

// deviceWrites leads from one set of devices to another. What both sets allow
// stays allowed all the time, so a process that opens /dev/null meanwhile does
// not get EPERM: between two sets that deny by default, first what is new is
// allowed, then what is too much is denied.
//
// Only a change of the default itself has a moment in which everything is
// denied: writing "a" clears the list (Documentation/admin-guide/
// cgroup-v1/devices.rst). That happens when the group is made, before it has
// processes.
func deviceWrites(from, to cgroups.DeviceSet) []cgroups.Write {
	var l list
	line := func(file string, r cgroups.DeviceRule) {
		l.add(cgroups.Write{
			Field: "devices", Controller: "devices", File: file,
			Value: r.DeviceID.String() + " " + r.Access.String(), WriteOnly: true,
		})
	}
	all := func(file string) {
		l.add(cgroups.Write{Field: "devices", Controller: "devices", File: file, Value: "a", WriteOnly: true})
	}
	switch {
	case to.AllowAll:
		// The exceptions of a set that allows by default cannot be read back, so
		// start afresh, and allow everything for a moment.
		all("devices.allow")
		for _, r := range to.Except {
			line("devices.deny", r)
		}
	case from.AllowAll:
		all("devices.deny")
		for _, r := range to.Except {
			line("devices.allow", r)
		}
	default:
		for _, r := range to.Minus(&from) {
			line("devices.allow", r)
		}
		for _, r := range from.Minus(&to) {
			line("devices.deny", r)
		}
	}
	return l.writes
}

// parseDevicesList reads devices.list: one line "a *:* rwm" for everything, or
// a line such as "c 1:3 rwm" for each exception to denying all. What is excepted
// from allowing all is not shown.
func parseDevicesList(text []byte) (cgroups.DeviceSet, error) {
	var s cgroups.DeviceSet
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		if len(scan.Trim(line)) == 0 {
			continue
		}
		r, ok := parseDevice(line)
		if !ok {
			return s, scan.Unexpected(line)
		}
		if r.Type == 'a' {
			return cgroups.DeviceSet{AllowAll: true}, nil
		}
		s.Except = append(s.Except, r)
	}
	return s, nil
}

func parseDevice(line []byte) (r cgroups.DeviceRule, ok bool) {
	typ, rest := scan.Field(line)
	id, rest := scan.Field(rest)
	access, rest := scan.Field(rest)
	if extra, _ := scan.Field(rest); extra != nil || len(typ) != 1 {
		return r, false
	}
	r.Type = typ[0]
	if r.Type != 'a' && r.Type != 'b' && r.Type != 'c' {
		return r, false
	}
	var major, minor []byte
	for i, c := range id {
		if c == ':' {
			major, minor = id[:i], id[i+1:]
			break
		}
	}
	var ok1, ok2 bool
	r.Major, ok1 = deviceNumber(major)
	r.Minor, ok2 = deviceNumber(minor)
	for _, c := range access {
		switch c {
		case 'r':
			r.Access |= cgroups.DevRead
		case 'w':
			r.Access |= cgroups.DevWrite
		case 'm':
			r.Access |= cgroups.Mknod
		default:
			return r, false
		}
	}
	return r, ok1 && ok2 && r.Access != 0
}

func deviceNumber(text []byte) (int64, bool) {
	if string(text) == "*" {
		return cgroups.AnyNumber, true
	}
	n, ok := scan.Uint(text)
	return int64(n), ok && n < 1<<32
}
