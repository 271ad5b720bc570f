package cgroup1

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
)

func set(t testing.TB, g *Group, res *specs.LinuxResources) {
	t.Helper()
	if err := g.Set(res); err != nil {
		t.Fatal(err)
	}
}

// snapshot is every readable setting of the group, apart from counters.
func snapshot(t testing.TB, g *Group) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range [][2]string{
		{"cpu", "cpu.shares"},
		{"cpu", "cpu.cfs_quota_us"},
		{"cpu", "cpu.cfs_period_us"},
		{"cpu", "cpu.cfs_burst_us"},
		{"cpu", "cpu.idle"},
		{"cpu", "cpu.rt_runtime_us"},
		{"cpu", "cpu.rt_period_us"},
		{"cpuset", "cpuset.cpus"},
		{"cpuset", "cpuset.mems"},
		{"memory", "memory.limit_in_bytes"},
		{"memory", "memory.memsw.limit_in_bytes"},
		{"memory", "memory.soft_limit_in_bytes"},
		{"memory", "memory.swappiness"},
		{"memory", "memory.oom_control"},
		{"memory", "memory.kmem.tcp.limit_in_bytes"},
		{"pids", "pids.max"},
		{"blkio", "blkio.bfq.weight"},
		{"blkio", "blkio.throttle.read_bps_device"},
		{"devices", "devices.list"},
	} {
		if b, err := os.ReadFile(filePath(t, g, f[0], f[1])); err == nil {
			out[f[1]] = string(b)
		}
	}
	return out
}

func differences(before, after map[string]string) []string {
	var out []string
	for name, was := range before {
		if is := after[name]; is != was {
			out = append(out, fmt.Sprintf("%s: %q, then %q", name, was, is))
		}
	}
	return out
}

func TestEveryFieldReachesTheKernel(t *testing.T) {
	g := create(t, nil)
	for _, tt := range []struct {
		name, controller, file string
		res                    specs.LinuxResources
		want                   string
	}{
		{"shares", "cpu", "cpu.shares", specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr[uint64](777)}}, "777"},
		{"quota", "cpu", "cpu.cfs_quota_us", specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](40000)}}, "40000"},
		{"period", "cpu", "cpu.cfs_period_us", specs.LinuxResources{CPU: &specs.LinuxCPU{Period: ptr[uint64](50000)}}, "50000"},
		{"burst", "cpu", "cpu.cfs_burst_us", specs.LinuxResources{CPU: &specs.LinuxCPU{Burst: ptr[uint64](10000)}}, "10000"},
		{"idle", "cpu", "cpu.idle", specs.LinuxResources{CPU: &specs.LinuxCPU{Idle: ptr[int64](1)}}, "1"},
		{"not idle", "cpu", "cpu.idle", specs.LinuxResources{CPU: &specs.LinuxCPU{Idle: ptr[int64](0)}}, "0"},
		{"realtime period", "cpu", "cpu.rt_period_us", specs.LinuxResources{CPU: &specs.LinuxCPU{RealtimePeriod: ptr[uint64](500000)}}, "500000"},
		{"cpus", "cpuset", "cpuset.cpus", specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0"}}, "0"},
		{"mems", "cpuset", "cpuset.mems", specs.LinuxResources{CPU: &specs.LinuxCPU{Mems: "0"}}, "0"},
		{"memory limit", "memory", "memory.limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20)}}, "67108864"},
		{"a limit that is no whole page", "memory", "memory.limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](64<<20 + 5)}}, "67108864"},
		{"swap", "memory", "memory.memsw.limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{Swap: ptr[int64](80 << 20)}}, "83886080"},
		{"reservation", "memory", "memory.soft_limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{Reservation: ptr[int64](32 << 20)}}, "33554432"},
		{"tcp", "memory", "memory.kmem.tcp.limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{KernelTCP: ptr[int64](16 << 20)}}, "16777216"},
		{"swappiness", "memory", "memory.swappiness", specs.LinuxResources{Memory: &specs.LinuxMemory{Swappiness: ptr[uint64](7)}}, "7"},
		{"no limit", "memory", "memory.limit_in_bytes", specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](-1)}}, "9223372036854771712"},
		{"pids", "pids", "pids.max", specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](20)}}, "20"},
		{"no processes", "pids", "pids.max", specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](0)}}, "1"},
		{"pids without limit", "pids", "pids.max", specs.LinuxResources{Pids: &specs.LinuxPids{Limit: ptr[int64](-1)}}, "max"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := snapshot(t, g)
			if _, ok := before[tt.file]; !ok {
				t.Skipf("this kernel has no %s", tt.file)
			}
			set(t, g, &tt.res)
			wantText(t, g, tt.controller, tt.file, tt.want)
			after := snapshot(t, g)
			if tt.name == "no limit" {
				delete(before, "memory.memsw.limit_in_bytes") // lifted as well, see the golden files
			}
			delete(before, tt.file)
			if tt.file == "cpu.idle" {
				delete(before, "cpu.shares") // the kernel sets them
			}
			if d := differences(before, after); len(d) > 0 {
				t.Errorf("other files changed: %s", d)
			}
		})
	}
	t.Run("OOM killer off and on", func(t *testing.T) {
		for _, off := range []bool{true, false} {
			set(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: ptr(off)}})
			n := map[bool]string{true: "1", false: "0"}[off]
			if got := text(t, g, "memory", "memory.oom_control"); !strings.HasPrefix(got, "oom_kill_disable "+n) {
				t.Errorf("memory.oom_control is %q", got)
			}
		}
	})
}

func TestAnEmptyUpdateChangesNothing(t *testing.T) {
	g := create(t, limits(0))
	before := snapshot(t, g)
	set(t, g, &specs.LinuxResources{})
	set(t, g, nil)
	if d := differences(before, snapshot(t, g)); len(d) > 0 {
		t.Errorf("changed: %s", d)
	}
}

func TestAnUpdateIsAllOrNothing(t *testing.T) {
	g := create(t, limits(0))
	full := func() *specs.LinuxResources {
		return &specs.LinuxResources{
			CPU: &specs.LinuxCPU{
				Shares: ptr[uint64](99), Quota: ptr[int64](700000), Period: ptr[uint64](900000), Burst: ptr[uint64](1000),
				Cpus: "0", Idle: ptr[int64](1),
			},
			Memory: &specs.LinuxMemory{
				Limit: ptr[int64](32 << 20), Swap: ptr[int64](32 << 20), Reservation: ptr[int64](1 << 20),
				Swappiness: ptr[uint64](3), DisableOOMKiller: ptr(true),
			},
			Pids: &specs.LinuxPids{Limit: ptr[int64](7)},
		}
	}
	for _, tt := range []struct {
		name string
		fail func(res *specs.LinuxResources)
		want error
	}{
		{"a controller that is not there", func(r *specs.LinuxResources) { r.Network = &specs.LinuxNetwork{ClassID: ptr[uint32](1)} }, cgroups.ErrNoController},
		{"a device that is not there", func(r *specs.LinuxResources) {
			r.BlockIO = &specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{{LinuxBlockIODevice: specs.LinuxBlockIODevice{Major: 4095, Minor: 1}, Rate: 1}}}
		}, unix.ENODEV},
		{"a hole in the devices", func(r *specs.LinuxResources) {
			r.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: ptr[int64](10), Access: "r"}, {Type: "c", Major: ptr[int64](10), Minor: ptr[int64](1), Access: "r"}}
		}, cgroups.ErrInvalid},
		{"a value out of range", func(r *specs.LinuxResources) { r.CPU.Cpus = "4000" }, unix.ERANGE},
		{"after the group became idle", func(r *specs.LinuxResources) {
			r.CPU = &specs.LinuxCPU{Idle: ptr[int64](1)}
			r.Network = &specs.LinuxNetwork{ClassID: ptr[uint32](1)}
		}, cgroups.ErrNoController},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := snapshot(t, g)
			res := full()
			tt.fail(res)
			if err := g.Set(res); !errors.Is(err, tt.want) {
				t.Errorf("Set = %v, want %v", err, tt.want)
			}
			if d := differences(before, snapshot(t, g)); len(d) > 0 {
				t.Errorf("not restored: %s", d)
			}
		})
	}
	set(t, g, full()) // without the failure it is taken
	wantText(t, g, "pids", "pids.max", "7")
}

// opencontainers/runc#3509
func TestAMemoryLimitBelowTheUsageIsRefused(t *testing.T) {
	g := create(t, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](128 << 20), Swap: ptr[int64](128 << 20)}})
	cmd := exec.Command("sh", "-c", `read x; x=0123456789abcdef; i=0; while [ $i -lt 21 ]; do x="$x$x"; i=$((i+1)); done; echo ready; read x`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	join(t, g, cmd.Process.Pid)
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	var ready [8]byte
	if _, err := out.Read(ready[:]); err != nil {
		t.Fatal(err)
	}
	for _, check := range []bool{true, false} {
		err := g.Set(&specs.LinuxResources{Memory: &specs.LinuxMemory{
			Limit: ptr[int64](4 << 20), Swap: ptr[int64](128 << 20), CheckBeforeUpdate: ptr(check),
		}})
		if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "below the current usage") {
			t.Errorf("checkBeforeUpdate %t: Set = %v, want EBUSY with the usage", check, err)
		}
		wantText(t, g, "memory", "memory.limit_in_bytes", strconv.Itoa(128<<20))
	}
	if !ktest.Alive(cmd.Process.Pid) {
		t.Error("the process was killed")
	}
}

// opencontainers/runc#2456, #4225
func TestQuotaAndPeriodChangeUnderALimitedParent(t *testing.T) {
	p := newPath(t, "parent")
	createAt(t, p, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](50000), Period: ptr[uint64](100000)}})
	g := createAt(t, parsePath(t, p.Rel().String()+"/own"), &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Quota: ptr[int64](500000), Period: ptr[uint64](1000000)},
	})
	for _, step := range []struct{ quota, period int64 }{
		{5000, 10000}, {500000, 1000000}, {1000, 10000}, {100000, 200000}, {25000, 50000}, {400000, 1000000},
	} {
		set(t, g, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr(step.quota), Period: ptr(uint64(step.period))}})
		wantText(t, g, "cpu", "cpu.cfs_quota_us", strconv.FormatInt(step.quota, 10))
		wantText(t, g, "cpu", "cpu.cfs_period_us", strconv.FormatInt(step.period, 10))
	}
	if err := g.Set(&specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](900000)}}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("more than the parent has: Set = %v, want EINVAL", err)
	}
	wantText(t, g, "cpu", "cpu.cfs_quota_us", "400000")
}

// containers/crun#1001
func TestMemoryAndSwapRiseAndFallTogether(t *testing.T) {
	g := create(t, nil)
	for _, step := range []struct{ limit, swap int64 }{
		{30 << 20, 50 << 20}, {60 << 20, 80 << 20}, {30 << 20, 50 << 20}, {30 << 20, 30 << 20}, {100 << 20, 100 << 20}, {30 << 20, -1}, {20 << 20, 40 << 20},
	} {
		set(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(step.limit), Swap: ptr(step.swap)}})
		wantText(t, g, "memory", "memory.limit_in_bytes", strconv.FormatInt(step.limit, 10))
		if step.swap > 0 {
			wantText(t, g, "memory", "memory.memsw.limit_in_bytes", strconv.FormatInt(step.swap, 10))
		}
	}
	set(t, g, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](-1)}})
	wantText(t, g, "memory", "memory.memsw.limit_in_bytes", "9223372036854771712")
}

func TestSharesOutOfRangeAreNoticed(t *testing.T) {
	g := create(t, nil)
	for _, shares := range []uint64{1, 1 << 20} {
		err := g.Set(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr(shares)}})
		if !errors.Is(err, cgroups.ErrInvalid) || !strings.Contains(err.Error(), "cpu.shares") {
			t.Errorf("shares %d: Set = %v, want ErrInvalid that names the field", shares, err)
		}
		wantText(t, g, "cpu", "cpu.shares", "1024")
	}
}

func TestThrottlesAreSetAndRestored(t *testing.T) {
	g := create(t, nil)
	var st unix.Stat_t
	entries, err := filepath.Glob("/dev/vd?")
	if err != nil || len(entries) == 0 {
		t.Skip("this host has no virtual disk to throttle")
	}
	if err := unix.Stat(entries[0], &st); err != nil {
		t.Fatal(err)
	}
	dev := specs.LinuxBlockIODevice{Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev))}
	throttle := func(rate uint64) *specs.LinuxBlockIO {
		return &specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{{LinuxBlockIODevice: dev, Rate: rate}}}
	}
	set(t, g, &specs.LinuxResources{BlockIO: throttle(1 << 20)})
	line := fmt.Sprintf("%d:%d 1048576", dev.Major, dev.Minor)
	wantText(t, g, "blkio", "blkio.throttle.read_bps_device", line)
	bad := throttle(2 << 20)
	bad.LeafWeight = ptr[uint16](100)
	bad.ThrottleReadBpsDevice = append(bad.ThrottleReadBpsDevice, specs.LinuxThrottleDevice{LinuxBlockIODevice: specs.LinuxBlockIODevice{Major: 4095}, Rate: 1})
	if err := g.Set(&specs.LinuxResources{BlockIO: bad}); err == nil {
		t.Error("Set of a missing device succeeded")
	}
	wantText(t, g, "blkio", "blkio.throttle.read_bps_device", line)
	set(t, g, &specs.LinuxResources{BlockIO: throttle(0)})
	wantText(t, g, "blkio", "blkio.throttle.read_bps_device", "")
}

// opencontainers/runc#2366, #2876, #3604
func TestUpdatesNeverTakeADeviceAwayForAMoment(t *testing.T) {
	g := create(t, limits(0))
	// The loop ends with status 1 at the first open that fails.
	cmd := exec.Command("sh", "-c", `while read -t 0 x 2>/dev/null; [ ! -e "$0" ]; do : </dev/null || exit 1; : >/dev/null || exit 1; done`,
		filepath.Join(t.TempDir(), "stop"))
	stop := cmd.Args[3]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	join(t, g, cmd.Process.Pid)
	extra := []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: ptr[int64](10), Minor: ptr[int64](229), Access: "rw"}}
	other := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}, {Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](3), Access: "rw"}}
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	var wg sync.WaitGroup
	for worker := range 2 {
		wg.Go(func() {
			for i := range rounds {
				res := limits(int64(i % 5))
				if worker == 0 {
					res.Devices = extra
					if i%2 == 0 {
						res.Devices = other
					}
				}
				if err := g.Set(res); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("an open of /dev/null failed: %v", err)
	}
}

func TestDevicesAreDeniedUnlessAllowed(t *testing.T) {
	kmsg := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mknod(kmsg, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))); err != nil {
		t.Fatal(err)
	}
	g := create(t, nil) // an empty list is not "everything is allowed"
	opens := func(node string) bool {
		cmd := exec.Command("sh", "-c", "read x; exec dd if="+node+" of=/dev/null count=0")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		join(t, g, cmd.Process.Pid)
		in.Close()
		return cmd.Wait() == nil
	}
	for _, node := range []string{"/dev/zero", "/dev/urandom", "/dev/null"} {
		if !opens(node) {
			t.Errorf("the default device %s cannot be opened", node)
		}
	}
	for _, tt := range []struct {
		name string
		list []specs.LinuxDeviceCgroup
		want bool
	}{
		{"no rule", nil, false},
		{"allowed", []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](11), Access: "r"}}, true},
		{"not named in an update", nil, true},
		{"denied", []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, false},
		{"everything", []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}, true},
		{"denied again", []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set(t, g, &specs.LinuxResources{Devices: tt.list})
			if got := opens(kmsg); got != tt.want {
				t.Errorf("1:11 can be opened is %t, want %t; devices.list is\n%s", got, tt.want, text(t, g, "devices", "devices.list"))
			}
		})
	}
}

func TestAThousandLivesLeaveNothing(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 20
	}
	l := layout(t)
	p := newPath(t, "cycle")
	var s cgroups.Stats
	before := len(ktest.FDs(os.Getpid()))
	for i := range n {
		g, err := Create(l, p, limits(0))
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		if _, err := g.OOMFD(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.Set(limits(1)), g.Stat(&s), g.Kill(within(t, 5*time.Second)), g.Delete(within(t, 5*time.Second))); err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		g.Close()
		g.Close()
	}
	if after := len(ktest.FDs(os.Getpid())); after > before {
		t.Errorf("%d descriptors before, %d after: %v", before, after, ktest.FDs(os.Getpid()))
	}
	if left := ktest.CgroupDirs(p.Rel().String()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
