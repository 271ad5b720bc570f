package ktest

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// RequireRoot skips the test unless it runs as uid 0 of the first user
// namespace.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(string(text)); len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295" {
		t.Skipf("needs the first user namespace, uid_map is %q", text)
	}
}

// RequireCap skips the test unless the calling thread holds the capability with
// that number in its effective set.
func RequireCap(t testing.TB, number int, name string) {
	t.Helper()
	if !HasCap(number) {
		t.Skipf("needs %s", name)
	}
}

// HasCap tells whether the calling thread holds the capability with that number
// in its effective set.
func HasCap(number int) bool {
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return false
	}
	return data[number/32].Effective&(1<<(number%32)) != 0
}

// RequireCgroupV2 skips the test unless /sys/fs/cgroup is the unified hierarchy.
func RequireCgroupV2(t testing.TB) {
	t.Helper()
	if !CgroupV2() {
		t.Skip("needs cgroup v2 at /sys/fs/cgroup")
	}
}

// RequireCgroupV1 skips the test unless the named controller is mounted as a v1
// hierarchy of its own.
func RequireCgroupV1(t testing.TB, controller string) {
	t.Helper()
	for _, h := range CgroupMounts() {
		if h.Has(controller) {
			return
		}
	}
	t.Skipf("needs the %s controller on cgroup v1", controller)
}

// CgroupV2 tells whether /sys/fs/cgroup is the unified hierarchy.
func CgroupV2() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}
