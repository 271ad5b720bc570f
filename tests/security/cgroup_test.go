package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// With a writable cgroup file system a container raises its own limits, lets its
// own program run as root on the host when a cgroup gets empty (release_agent,
// CVE-2022-0492), or opens every device. Nothing there takes a write.
func TestTheCgroupFileSystemTakesNoWrites(t *testing.T) {
	for _, cgroupns := range []bool{true, false} {
		b := newBox(t, "/bin/sh", "-c", `
			cd /sys/fs/cgroup
			for d in . *; do
				mkdir $d/evil 2>/dev/null && echo made $d/evil
				for f in $(ls $d); do
					test -f $d/$f || continue
					(echo 1 > $d/$f) 2>/dev/null && echo wrote $d/$f
				done
			done
			ls -d */release_agent release_agent 2>/dev/null
			cat /proc/self/cgroup`)
		if !cgroupns {
			b.dropNamespace(specs.CgroupNamespace)
		}
		out, _, err := b.run()
		must(t, err)
		for _, bad := range []string{"made ", "wrote ", "release_agent"} {
			if strings.Contains(out, bad) {
				t.Errorf("cgroup namespace %v: %s", cgroupns, out)
			}
		}
		if cgroupns && strings.Contains(out, scratch.Name()) {
			t.Errorf("the path on the host shows: %s", out)
		}
	}
}

func (b *box) dropNamespace(kind specs.LinuxNamespaceType) {
	var kept []specs.LinuxNamespace
	for _, n := range b.spec.Linux.Namespaces {
		if n.Type != kind {
			kept = append(kept, n)
		}
	}
	b.spec.Linux.Namespaces = kept
}

// A path with ".." or a name that merely begins like another one led out of the
// place for a container's cgroup.
func TestACgroupPathDoesNotLeadElsewhere(t *testing.T) {
	top := "/" + scratch.Name()
	for _, p := range []string{
		top + "/../../ibex-evil", "/a/../../ibex-evil", "../ibex-evil", top + "/.", top + "//x/../..", "/..", "/.",
		top + "/a\nb", top + "/a\x00b", top + "/a\x01b", top + "/" + strings.Repeat("a", 300), top + "/" + strings.Repeat("a/", 2500),
	} {
		b := newBox(t, "/bin/true")
		b.spec.Linux.CgroupsPath = p
		if _, _, err := b.run(); err == nil {
			t.Errorf("%.100q was taken", p)
		}
	}
	if left := ktest.CgroupDirs("/ibex-evil"); len(left) > 0 {
		t.Errorf("cgroups of another place: %v", left)
	}
}

// A list of device rules was taken for what is forbidden, and all others were
// allowed (GHSA-g54h-m393-cpwq).
func TestWithoutDeviceRulesTheDefaultDevicesAreAllThereIs(t *testing.T) {
	for name, res := range map[string]*specs.LinuxResources{
		"no rules": {}, "no resources": nil, "deny all": {Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}},
	} {
		b := newBox(t, "/bin/sh", "-c", `
			for d in "b 8 0" "c 1 1" "c 1 4" "c 10 237" "b 7 0" "c 1 11"; do
				mknod /tmp/x $d 2>/dev/null && { dd if=/tmp/x of=/dev/null count=0 2>/dev/null && echo opened $d; }
				dd if=/dev/null of=/tmp/x count=0 conv=notrunc 2>/dev/null
				rm -f /tmp/x
			done
			cat /dev/null && dd if=/dev/zero of=/dev/full count=0 2>/dev/null && echo usual`)
		must(t, os.Symlink("busybox", filepath.Join(b.root, "bin/rm")))
		b.spec.Linux.Resources = res
		out, _, err := b.run()
		if err != nil || out != "usual\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// An exec is put into the container's own cgroup, wherever the first process has
// moved itself: runc asked for that one's present place (#5101).
func TestAnExecIsInTheContainersCgroup(t *testing.T) {
	b := newBox(t, "/bin/sleep", "1000")
	c := b.start()
	pid := c.Init().PID()
	moved := 0
	for _, d := range ktest.CgroupDirs(b.spec.Linux.CgroupsPath) {
		sub := filepath.Join(d, "own")
		if os.Mkdir(sub, 0o755) == nil && os.WriteFile(filepath.Join(sub, "cgroup.procs"), []byte(itoa(pid)), 0) == nil {
			moved++
		}
	}
	if moved == 0 {
		t.Fatal("the first process could not be moved")
	}
	out, _, err := b.exec(c, nil, "/bin/cat", "/proc/self/cgroup")
	if err != nil || strings.Contains(out, "/own") {
		t.Errorf("%q, %v", out, err)
	}
}
