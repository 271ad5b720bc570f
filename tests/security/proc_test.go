package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A volume over /proc swallowed what the runtime wrote to /proc/self/attr, and
// the container ran without its LSM profile (CVE-2019-16884); later ones moved
// other files of a real procfs there (CVE-2025-52881). ibex writes through a
// procfs of its own, and refuses the mounts all the same.
func TestNothingIsMountedOnOrBelowProc(t *testing.T) {
	host := decoy(t)
	for _, m := range []specs.Mount{
		{Destination: "/proc", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/proc", Type: "bind", Source: host, Options: []string{"bind"}},
		{Destination: "/proc", Source: host, Options: []string{"rbind"}},
		{Destination: "/proc/", Type: "bind", Source: host, Options: []string{"bind"}},
		{Destination: "//proc/.", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/tmp/../proc", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "proc", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/proc/self", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/proc/self/attr", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/proc/sys", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/proc/sys/kernel/core_pattern", Type: "bind", Source: host + "/secret", Options: []string{"bind"}},
		{Destination: "/proc/sysrq-trigger", Type: "bind", Source: "/dev/null", Options: []string{"bind"}},
		{Destination: "/proc/1/attr/exec", Type: "bind", Source: "/proc/self/sched", Options: []string{"bind"}},
		{Destination: "/proc/net", Type: "tmpfs", Source: "tmpfs"},
	} {
		b := newBox(t, "/bin/true")
		b.spec.Mounts = append(b.spec.Mounts, m)
		if _, _, err := b.run(); err == nil {
			t.Errorf("a mount of type %q on %q was made", m.Type, m.Destination)
		}
		b.nothingLeft()
	}
}

// These are keys that some runtime let through to the host: by a plus sign
// and a second key (CVE-2022-0811), by namespaces that were the host's
// (CVE-2022-0532), by the other separator.
func TestASysctlOfTheHostIsRefused(t *testing.T) {
	for _, kv := range [][2]string{
		hostValue("kernel.core_pattern"),
		{"kernel/core_pattern", hostValue("kernel.core_pattern")[1]},
		hostValue("kernel.modprobe"),
		{"net.ipv4.ip_forward+kernel.core_pattern", "1"},
		{"net.ipv4.ip_forward", "1+kernel.core_pattern=|/evil"},
		{"net.ipv4.ip_forward", "1\nkernel.core_pattern"},
		{"net.ipv4.ip_forward", "1\x00"},
		{"net/../kernel/core_pattern", "x"},
		{"net.../kernel.core_pattern", "x"},
		{"net//ipv4/ip_forward", "1"},
		{"/net/ipv4/ip_forward", "1"},
		{"net.ipv4.", "1"},
		{"", "1"},
		{".", "1"},
		{"..", "1"},
		hostValue("vm.overcommit_memory"), hostValue("fs.suid_dumpable"), hostValue("user.max_user_namespaces"),
		{"kernel.shm_rmid_forced.x", "1"},
		{"kernel.msgmax/../core_pattern", "1"},
		{"net.ipv4.ip_forward ", "1"},
	} {
		b := newBox(t, "/bin/true")
		b.spec.Linux.Sysctl = map[string]string{kv[0]: kv[1]}
		if _, _, err := b.run(); err == nil {
			t.Errorf("%q = %q was taken", kv[0], kv[1])
		}
		b.nothingLeft()
	}
	b := newBox(t, "/bin/cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/shm_rmid_forced")
	b.spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel/shm_rmid_forced": "1"}
	if out, _, err := b.run(); err != nil || out != "1\n1\n" {
		t.Errorf("the container's own: %q, %v", out, err)
	}
}

// hostValue is a key of the host with the value that it has: should it be taken,
// no harm is done.
func hostValue(key string) [2]string {
	text, _ := os.ReadFile("/proc/sys/" + strings.ReplaceAll(key, ".", "/"))
	return [2]string{key, strings.TrimSpace(string(text))}
}

// GHSA-w2j5-3rcx-vx7x: the network namespace was given by a path, and was the
// host's.
func TestASysctlOfANamespaceThatIsTheHostsIsRefused(t *testing.T) {
	bound := filepath.Join(scratch.Dir, "hostnet")
	must(t, os.WriteFile(bound, nil, 0o600))
	must(t, unix.Mount("/proc/self/ns/net", bound, "", unix.MS_BIND, ""))
	defer unix.Unmount(bound, unix.MNT_DETACH) //nolint:errcheck // the end of the run looks for it
	link := filepath.Join(scratch.Dir, "hostnet-link")
	must(t, os.Symlink("/proc/self/ns/net", link))
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	must(t, err)
	for _, p := range []string{"/proc/self/ns/net", bound, link, ""} {
		b := newBox(t, "/bin/true")
		var kept []specs.LinuxNamespace
		for _, n := range b.spec.Linux.Namespaces {
			if n.Type != specs.NetworkNamespace {
				kept = append(kept, n)
			}
		}
		if p != "" {
			kept = append(kept, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: p})
		}
		b.spec.Linux.Namespaces = kept
		b.spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": strings.TrimSpace(string(before))}
		if _, _, err := b.run(); err == nil {
			t.Errorf("a sysctl of the host's network was written with path %q", p)
		}
	}
}
