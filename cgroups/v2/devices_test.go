package cgroup2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
)

func programs(t testing.TB, g *Group) int {
	t.Helper()
	p, err := attached(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(p)
}

// opens tries to open a device node in the group, as a process born there.
func opens(t testing.TB, g *Group, node string) bool {
	t.Helper()
	cmd := command(t, g, "dd", "if="+node, "of=/dev/null", "count=0")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not permitted") {
		if _, ok := err.(*exec.ExitError); !ok {
			t.Fatal(err)
		}
	}
	return err == nil
}

func TestDevicesAreDeniedUnlessAllowed(t *testing.T) {
	dir := t.TempDir()
	kmsg := filepath.Join(dir, "kmsg")
	if err := unix.Mknod(kmsg, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))); err != nil {
		t.Fatal(err)
	}
	g := create(t, nil) // an empty list is not "everything is allowed"
	if opens(t, g, kmsg) {
		t.Error("1:11 can be opened without a rule")
	}
	for _, node := range []string{"/dev/zero", "/dev/urandom", "/dev/null"} {
		if !opens(t, g, node) {
			t.Errorf("the default device %s cannot be opened", node)
		}
	}
	allow := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
		{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](11), Access: "r"},
	}}
	if err := g.Set(allow); err != nil {
		t.Fatal(err)
	}
	if !opens(t, g, kmsg) {
		t.Error("1:11 cannot be opened after the update that allows it")
	}
	if err := g.Set(&specs.LinuxResources{}); err != nil {
		t.Fatal(err)
	}
	if !opens(t, g, kmsg) {
		t.Error("an update without devices took one away")
	}
	deny := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	if err := g.Set(deny); err != nil {
		t.Fatal(err)
	}
	if opens(t, g, kmsg) {
		t.Error("1:11 can be opened after the update that denies it")
	}
}

func TestAHundredUpdatesLeaveOneProgramAndNoDescriptor(t *testing.T) {
	g := create(t, nil)
	fds := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	res := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
		{Allow: true, Type: "c", Major: ptr[int64](10), Access: "rw"},
	}}
	before := fds()
	for range 100 {
		if err := g.Set(res); err != nil {
			t.Fatal(err)
		}
	}
	if n := programs(t, g); n != 1 {
		t.Errorf("%d device programs, want 1", n)
	}
	if after := fds(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// granted is the meaning of a list of rules: for each access that is asked for,
// the last rule that matches decides.
func granted(rules []cgroups.DeviceRule, typ byte, major, minor int64, access cgroups.Access) bool {
	for _, bit := range []cgroups.Access{cgroups.Mknod, cgroups.DevRead, cgroups.DevWrite} {
		if access&bit == 0 {
			continue
		}
		allow := false
		for _, r := range rules {
			if r.Access&bit != 0 && (r.Type == 'a' || r.Type == typ) &&
				(r.Major == cgroups.AnyNumber || r.Major == major) && (r.Minor == cgroups.AnyNumber || r.Minor == minor) {
				allow = r.Allow
			}
		}
		if !allow {
			return false
		}
	}
	return true
}

// A node of a device without a driver can be made. Opening it fails with EPERM if
// the program denies it, and otherwise because there is no driver.
func TestTheProgramDoesWhatTheRulesSay(t *testing.T) {
	g := create(t, nil)
	dir := t.TempDir()
	type device struct {
		typ          byte
		major, minor int64
		node         string
	}
	var devices []device
	for _, typ := range []byte{'b', 'c'} {
		for _, major := range []int64{240, 241} {
			for _, minor := range []int64{77, 78} {
				d := device{typ, major, minor, filepath.Join(dir, fmt.Sprintf("%c-%d-%d", typ, major, minor))}
				mode := uint32(unix.S_IFCHR | 0o600)
				if typ == 'b' {
					mode = unix.S_IFBLK | 0o600
				}
				if err := unix.Mknod(d.node, mode, int(unix.Mkdev(uint32(major), uint32(minor)))); err != nil {
					t.Fatal(err)
				}
				devices = append(devices, d)
			}
		}
	}
	rule := func(allow bool, typ string, major, minor int64, access string) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: allow, Type: typ, Major: &major, Minor: &minor, Access: access}
	}
	lists := map[string][]specs.LinuxDeviceCgroup{
		"empty":            nil,
		"all":              {{Allow: true, Access: "rwm"}},
		"all but a write":  {{Allow: true, Access: "rwm"}, rule(false, "b", 240, -1, "w")},
		"a hole":           {rule(true, "c", 240, -1, "rw"), rule(false, "c", 240, 77, "rwm")},
		"a hole filled":    {rule(true, "c", 240, -1, "rw"), rule(false, "c", 240, 77, "rwm"), rule(true, "c", 240, 77, "r")},
		"two halves":       {rule(true, "b", 241, 78, "r"), rule(true, "b", 241, -1, "w")},
		"deny in the end":  {rule(true, "b", -1, -1, "rwm"), {Allow: false, Access: "rwm"}},
		"deny reading":     {{Allow: true, Access: "rwm"}, {Allow: false, Access: "r"}},
		"impossible major": {rule(true, "c", 1<<32-1, 77, "rw")},
	}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			rules, err := cgroups.DeviceRules(list)
			if err != nil {
				t.Fatal(err)
			}
			if err := setDevices(g.dir, rules, false); err != nil {
				t.Fatalf("%+v", err)
			}
			for _, d := range devices {
				for op, access := range map[string]cgroups.Access{
					"<": cgroups.DevRead, ">>": cgroups.DevWrite, "<>": cgroups.DevRead | cgroups.DevWrite,
				} {
					out, _ := command(t, g, "sh", "-c", "true "+op+d.node).CombinedOutput()
					allowed := !strings.Contains(string(out), "not permitted")
					if want := granted(rules, d.typ, d.major, d.minor, access); allowed != want {
						t.Errorf("%s %s: allowed is %t, want %t (%s)", op, d.node, allowed, want, out)
					}
				}
			}
		})
	}
}
