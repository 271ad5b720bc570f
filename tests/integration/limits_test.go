package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// limits sets a memory limit in bytes and a process limit; 0 leaves it out.
func limits(memory, pids int64) []oci.SpecOpts {
	return withResources(func(r *specs.LinuxResources) {
		if memory != 0 {
			r.Memory = &specs.LinuxMemory{Limit: &memory}
		}
		if pids != 0 {
			r.Pids = &specs.LinuxPids{Limit: &pids}
		}
	})
}

func TestLimitsAreWrittenToTheCgroup(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: withResources(func(r *specs.LinuxResources) {
		r.Memory = &specs.LinuxMemory{Limit: ptr[int64](100 << 20), Reservation: ptr[int64](50 << 20)}
		r.CPU = &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](50000), Period: ptr[uint64](100000), Cpus: "0", Mems: "0"}
		r.Pids = &specs.LinuxPids{Limit: ptr[int64](100)}
	})})
	if n := b.number("memory", "memory.limit_in_bytes", "memory.max"); n != 100<<20 {
		t.Errorf("memory limit %d", n)
	}
	if n := b.number("memory", "memory.soft_limit_in_bytes", "memory.low"); n != 50<<20 {
		t.Errorf("memory reservation %d", n)
	}
	if n := b.number("pids", "pids.max", "pids.max"); n != 100 {
		t.Errorf("pids %d", n)
	}
	if text := readFile(b.cgroupFile("cpuset", "cpuset.cpus", "cpuset.cpus")); text != "0\n" {
		t.Errorf("cpus %q", text)
	}
	if !ktest.CgroupV2() {
		for name, want := range map[string]uint64{"cpu.shares": 512, "cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000} {
			if n := b.number("cpu", name, ""); n != want {
				t.Errorf("%s is %d", name, n)
			}
		}
	} else if text := readFile(b.cgroupFile("cpu", "", "cpu.max")); text != "50000 100000\n" {
		t.Errorf("cpu.max %q", text)
	}
	if out := b.ok("grep", "Cpus_allowed_list", "/proc/self/status"); !strings.HasSuffix(out, "\t0\n") {
		t.Errorf("CPUs of an exec: %q", out)
	}
	b.stop()
}

// opencontainers/runc#1914, opencontainers/runc#4083
func TestAProcessLimitHoldsAndExecStillWorks(t *testing.T) {
	t.Parallel()
	limit, n := int64(5), 8
	if incumbent() { // whose helper has threads
		limit, n = 40, 50
	}
	b := startBox(t, boxSpec{spec: limits(0, limit)})
	if r := b.exec("sh", "-c", fmt.Sprintf("for i in $(seq %d); do sleep 100000 > /dev/null 2>&1 & done", n)); r.code == 0 || !strings.Contains(r.err, "can't fork") {
		t.Errorf("%d processes: %v", n, r)
	}
	if !incumbent() {
		// How many of them there are now depends on how long the exec's helper
		// was counted.
		for b.number("pids", "pids.current", "pids.current") < 5 {
			b.startExec(execSpec{args: []string{"sleep", "100000"}})
		}
		// Moving a process in is not limited, forks are; and this one only
		// needs itself.
		if out := b.ok("echo", "hi"); out != "hi\n" {
			t.Errorf("got %q", out)
		}
	}
	b.stop()
}

// opencontainers/runc#4014, opencontainers/runc#4566
func TestProcessLimitsOfZeroAndMinusOne(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  *int64
		want string
	}{
		{"absent", nil, "max\n"}, {"0", ptr[int64](0), "1\n"}, {"-1", ptr[int64](-1), "max\n"}, {"20", ptr[int64](20), "20\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := startBox(t, boxSpec{args: []string{"sh", "-c", "echo up; exec sleep 100000"}, spec: withResources(func(r *specs.LinuxResources) {
				if tt.set != nil {
					r.Pids = &specs.LinuxPids{Limit: tt.set}
				}
			})})
			b.out.waitFor(t, "up")
			if text := readFile(b.cgroupFile("pids", "pids.max", "pids.max")); text != tt.want {
				t.Errorf("pids.max %q, want %q", text, tt.want)
			}
			b.stop()
		})
	}
}

// cgroupState reads every file of the container's cgroups that a limit could
// have changed.
func (b *box) cgroupState() map[string]string {
	state := map[string]string{}
	for _, dir := range ktest.CgroupDirs(b.d.Cgroup(b.id)) {
		for _, name := range []string{
			"memory.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness",
			"memory.oom_control", "cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuset.cpus", "cpuset.mems",
			"pids.max", "blkio.weight", "blkio.bfq.weight", "devices.list", "freezer.state",
			"memory.max", "memory.low", "memory.high", "cpu.weight", "cpu.max", "io.weight",
		} {
			if text := readFile(dir + "/" + name); text != "" {
				state[name] = text
			}
		}
	}
	return state
}

// opencontainers/runc#4210, opencontainers/runc#4225: an update changed what it
// did not name.
func TestUpdateChangesWhatItNamesOnly(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: withResources(func(r *specs.LinuxResources) {
		r.Memory = &specs.LinuxMemory{Limit: ptr[int64](100 << 20)}
		r.CPU = &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](500000), Period: ptr[uint64](1000000), Cpus: "0", Mems: "0"}
		r.Pids = &specs.LinuxPids{Limit: ptr[int64](100)}
	})})
	for _, tt := range []struct {
		name  string
		res   specs.LinuxResources
		files []string // that may change
		check func() string
	}{
		{
			"memory",
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20)}},
			[]string{"memory.limit_in_bytes", "memory.max"},
			func() string {
				return fmt.Sprint(b.number("memory", "memory.limit_in_bytes", "memory.max") == 64<<20)
			},
		},
		{
			"pids",
			specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](33)}},
			[]string{"pids.max"},
			func() string { return fmt.Sprint(b.number("pids", "pids.max", "pids.max") == 33) },
		},
		{
			"quota",
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](600000)}},
			[]string{"cpu.cfs_quota_us", "cpu.max"},
			func() string { return fmt.Sprint(b.cpuMax() == "600000 1000000") },
		},
		{
			"no quota",
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](-1)}},
			[]string{"cpu.cfs_quota_us", "cpu.max"},
			func() string {
				s := b.cpuMax()
				return fmt.Sprint(s == "-1 1000000" || s == "max 1000000")
			},
		},
		{
			"cpus",
			specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0-" + strconv.Itoa(cpus()-1)}},
			[]string{"cpuset.cpus"},
			func() string {
				return fmt.Sprint(readFile(b.cgroupFile("cpuset", "cpuset.cpus", "cpuset.cpus")) != "0\n" || cpus() == 1)
			},
		},
	} {
		before := b.cgroupState()
		if err := b.task.Update(b.ctx, containerd.WithResources(&tt.res)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if tt.check() != "true" {
			t.Errorf("%s: not applied: %v", tt.name, b.cgroupState())
		}
		for name, text := range b.cgroupState() {
			if text != before[name] && !slices.Contains(tt.files, name) {
				t.Errorf("%s: %s was %q, is %q", tt.name, name, before[name], text)
			}
		}
	}
	b.stop()
}

// cpuMax is the quota and the period.
func (b *box) cpuMax() string {
	if ktest.CgroupV2() {
		return strings.TrimSpace(readFile(b.cgroupFile("cpu", "", "cpu.max")))
	}
	return strings.TrimSpace(readFile(b.cgroupFile("cpu", "cpu.cfs_quota_us", ""))) + " " +
		strings.TrimSpace(readFile(b.cgroupFile("cpu", "cpu.cfs_period_us", "")))
}

func cpus() int { return strings.Count(readFile("/proc/cpuinfo"), "processor\t:") }

// opencontainers/runc#3509
func TestALimitBelowTheUsageIsRefusedOnRequest(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"probe", "hold", strconv.Itoa(64 << 20)}, spec: limits(200<<20, 0)})
	b.out.waitFor(t, "holding")
	err := b.task.Update(b.ctx, containerd.WithResources(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](16 << 20), CheckBeforeUpdate: ptr(true)},
	}))
	wantError(t, err, nil)
	if n := b.number("memory", "memory.limit_in_bytes", "memory.max"); n != 200<<20 {
		t.Errorf("the limit is %d", n)
	}
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

// An update that fails half way leaves nothing changed.
func TestAFailedUpdateIsRolledBack(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it stops half way")
	b := startBox(t, boxSpec{spec: limits(100<<20, 50)})
	before := b.cgroupState()
	err := b.task.Update(b.ctx, containerd.WithResources(&specs.LinuxResources{
		Pids:   &specs.LinuxPids{Limit: ptr[int64](40)},
		Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20)},
		CPU:    &specs.LinuxCPU{Period: ptr[uint64](1)},
	}))
	wantError(t, err, nil)
	for name, text := range b.cgroupState() {
		if text != before[name] {
			t.Errorf("%s was %q, is %q", name, before[name], text)
		}
	}
	b.stop()
}

// opencontainers/runc#3604: for a moment the update denied every device.
func TestUpdatesDoNotDisturbDevices(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "while :; do : > /dev/null || exit 9; done"}})
	before := ktest.ReadFootprint(b.shimPID)
	for i := range 20 {
		err := b.task.Update(b.ctx, containerd.WithResources(&specs.LinuxResources{
			Memory: &specs.LinuxMemory{Limit: ptr(int64(100+i) << 20)},
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s, output %q", s, b.err)
	}
	b.steady(before)
	b.stop()
}

func TestOnlyAllowedDevicesOpen(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: editProcess(func(p *specs.Process) {
		for _, set := range []*[]string{&p.Capabilities.Bounding, &p.Capabilities.Permitted, &p.Capabilities.Effective} {
			*set = append(*set, "CAP_SYSLOG")
		}
	})})
	out := b.ok("sh", "-c", `mknod /tmp/kmsg c 1 11; mknod /tmp/null c 1 3
		head -c 1 /tmp/kmsg > /tmp/x 2>/tmp/err && echo kmsg opened; cat /tmp/err
		echo > /tmp/null && echo null opened
		head -c 1 /dev/zero | wc -c; head -c 1 /dev/urandom | wc -c; test -c /dev/full && echo full`)
	if !strings.Contains(out, "Operation not permitted") || !strings.Contains(out, "null opened\n1\n1\nfull\n") || strings.Contains(out, "kmsg opened") {
		t.Errorf("got %q", out)
	}
	b.stop()
}
