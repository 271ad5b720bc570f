package cgroup2

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	ctrcgroups "github.com/containerd/cgroups/v3/cgroup2"
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

// settings are the files that hold limits.
var settings = []string{
	"cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle", "cpuset.cpus", "cpuset.mems",
	"memory.max", "memory.low", "memory.high", "memory.min", "memory.swap.max", "memory.oom.group",
	"pids.max", "io.max", "io.weight", "io.bfq.weight", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "misc.max",
	"cgroup.max.depth", "cgroup.max.descendants",
}

func snapshot(t testing.TB, g *Group) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range settings {
		if b, err := os.ReadFile(file(g, name)); err == nil {
			out[name] = strings.TrimSpace(string(b))
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
	require(t, "cpu", "memory", "pids")
	g := create(t, nil)
	memory := func(m specs.LinuxMemory) specs.LinuxResources { return specs.LinuxResources{Memory: &m} }
	cpu := func(c specs.LinuxCPU) specs.LinuxResources { return specs.LinuxResources{CPU: &c} }
	pids := func(n int64) specs.LinuxResources { return specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &n}} }
	for _, tt := range []struct {
		name, file string
		res        specs.LinuxResources
		want       string
	}{
		{"shares", "cpu.weight", cpu(specs.LinuxCPU{Shares: ptr[uint64](512)}), "59"},
		{"quota", "cpu.max", cpu(specs.LinuxCPU{Quota: ptr[int64](40000)}), "40000 100000"},
		{"period", "cpu.max", cpu(specs.LinuxCPU{Period: ptr[uint64](50000)}), "40000 50000"},
		{"burst", "cpu.max.burst", cpu(specs.LinuxCPU{Burst: ptr[uint64](10000)}), "10000"},
		{"no burst", "cpu.max.burst", cpu(specs.LinuxCPU{Burst: ptr[uint64](0)}), "0"},
		{"no quota", "cpu.max", cpu(specs.LinuxCPU{Quota: ptr[int64](-1)}), "max 50000"},
		{"idle", "cpu.idle", cpu(specs.LinuxCPU{Idle: ptr[int64](1)}), "1"},
		{"not idle", "cpu.idle", cpu(specs.LinuxCPU{Idle: ptr[int64](0)}), "0"},
		{"cpus", "cpuset.cpus", cpu(specs.LinuxCPU{Cpus: "0"}), "0"},
		{"mems", "cpuset.mems", cpu(specs.LinuxCPU{Mems: "0"}), "0"},
		{"memory limit", "memory.max", memory(specs.LinuxMemory{Limit: ptr[int64](64<<20 + 5)}), "67108864"},
		{"no memory limit", "memory.max", memory(specs.LinuxMemory{Limit: ptr[int64](-1)}), "max"},
		{"reservation", "memory.low", memory(specs.LinuxMemory{Reservation: ptr[int64](32 << 20)}), "33554432"},
		{"pids", "pids.max", pids(20), "20"},
		{"no processes", "pids.max", pids(0), "1"},
		{"pids without limit", "pids.max", pids(-1), "max"},
		{"unified", "memory.high", specs.LinuxResources{Unified: map[string]string{"memory.high": "1048576"}}, "1048576"},
		{"unified wins", "cpu.weight", specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr[uint64](2)}, Unified: map[string]string{"cpu.weight": "77"}}, "77"},
		{"huge pages", "hugetlb.2MB.max", specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 5 << 20}}}, "4194304"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := snapshot(t, g)
			if _, ok := before[tt.file]; !ok {
				t.Skipf("this kernel has no %s", tt.file)
			}
			set(t, g, &tt.res)
			wantText(t, g, tt.file, tt.want)
			after := snapshot(t, g)
			delete(before, tt.file)
			switch tt.file {
			case "cpu.idle":
				delete(before, "cpu.weight") // the kernel sets it
			case "memory.max":
				delete(before, "memory.swap.max") // no limit lifts both
			case "hugetlb.2MB.max":
				delete(before, "hugetlb.2MB.rsvd.max")
			}
			if d := differences(before, after); len(d) > 0 {
				t.Errorf("other files changed: %s", d)
			}
		})
	}
}

func TestAnUpdateIsAllOrNothing(t *testing.T) {
	require(t, "cpu", "memory", "pids")
	g := create(t, &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Shares: ptr[uint64](512), Quota: ptr[int64](50000), Period: ptr[uint64](100000)},
		Memory: &specs.LinuxMemory{Limit: ptr[int64](64 << 20)},
		Pids:   &specs.LinuxPids{Limit: ptr[int64](100)},
	})
	full := func() *specs.LinuxResources {
		return &specs.LinuxResources{
			CPU:    &specs.LinuxCPU{Quota: ptr[int64](700000), Period: ptr[uint64](900000), Burst: ptr[uint64](1000), Idle: ptr[int64](1)},
			Memory: &specs.LinuxMemory{Limit: ptr[int64](32 << 20), Reservation: ptr[int64](1 << 20)},
			Pids:   &specs.LinuxPids{Limit: ptr[int64](7)},
		}
	}
	for _, tt := range []struct {
		name string
		fail func(res *specs.LinuxResources)
		want error
	}{
		{"a file that is not there", func(r *specs.LinuxResources) { r.Unified = map[string]string{"memory.nonsense": "1"} }, cgroups.ErrNoController},
		{"a value out of range", func(r *specs.LinuxResources) { r.Unified = map[string]string{"memory.high": "x"} }, unix.EINVAL},
		{"a controller that is not there", func(r *specs.LinuxResources) { r.Unified = map[string]string{"nonsense.max": "1"} }, cgroups.ErrNoController},
		{"a bad device", func(r *specs.LinuxResources) { r.Devices = []specs.LinuxDeviceCgroup{{Type: "x"}} }, cgroups.ErrInvalid},
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
	set(t, g, full())
	wantText(t, g, "pids.max", "7")
}

// opencontainers/runc#3509
func TestAMemoryLimitBelowTheUsageIsRefusedIfAsked(t *testing.T) {
	require(t, "memory")
	g := create(t, &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](128 << 20)}})
	cmd := command(t, g, "sh", "-c", `x=0123456789abcdef; i=0; while [ $i -lt 21 ]; do x="$x$x"; i=$((i+1)); done; echo ready; read x`)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ready [8]byte
	if _, err := out.Read(ready[:]); err != nil {
		t.Fatal(err)
	}
	err = g.Set(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr[int64](4 << 20), CheckBeforeUpdate: ptr(true)}})
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "below the current usage") {
		t.Errorf("Set = %v, want EBUSY with the usage", err)
	}
	wantText(t, g, "memory.max", strconv.Itoa(128<<20))
	if !ktest.Alive(cmd.Process.Pid) {
		t.Error("the process was killed")
	}
}

func TestAnOOMKillIsCountedAndNotified(t *testing.T) {
	require(t, "memory")
	for _, tt := range []struct {
		name     string
		onParent bool
	}{{"own limit", false}, {"limit of the parent", true}} {
		t.Run(tt.name, func(t *testing.T) {
			limit := &specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: ptr[int64](16 << 20), Swap: ptr[int64](16 << 20)},
			}
			p := newPath(t, "parent")
			var parentRes, ownRes *specs.LinuxResources
			if tt.onParent {
				parentRes = limit
			} else {
				ownRes = limit
			}
			createAt(t, p, parentRes)
			g := createAt(t, parsePath(t, p.Rel().String()+"/own"), ownRes)
			fd, err := g.OOMFD()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := g.OOMKills(); n != 0 || err != nil {
				t.Fatalf("before: %d kills, %v", n, err)
			}
			if readable(t, fd, 0) {
				t.Error("the descriptor is readable before anything happened")
			}
			cmd := command(t, g, "sh", "-c", `x=0123456789abcdef; while :; do x="$x$x"; done`)
			if err := cmd.Run(); err == nil || err.Error() != "signal: killed" {
				t.Fatalf("the process ended with %v, want an OOM kill", err)
			}
			if !readable(t, fd, 5000) {
				t.Error("no notification")
			}
			if n, err := g.OOMKills(); n != 1 || err != nil {
				t.Errorf("%d kills, %v; want 1", n, err)
			}
			want := "/" + g.path.Rel().String()
			if tt.onParent {
				want = "/" + p.Rel().String()
			}
			if at, err := g.OOMCause(); at != want || err != nil {
				t.Errorf("the limit was that of %q, %v; want %s", at, err, want)
			}
			if at, err := g.OOMCause(); at != "" || err != nil {
				t.Errorf("without another kill the limit was that of %q, %v", at, err)
			}
			// The kernel may notify twice for one kill, of max and of oom_kill.
			ktest.Eventually(t, 5*time.Second, "the descriptor is reset", func() error {
				if _, err := g.OOMKills(); err != nil {
					return err
				}
				if readable(t, fd, 0) {
					return errors.New("OOMKills did not reset the descriptor")
				}
				return nil
			})
			var s cgroups.Stats
			if err := g.Stat(&s); err != nil || s.OOMKills() != 1 {
				t.Errorf("statistics say %d kills, %v; want 1", s.OOMKills(), err)
			}
			if err := g.Delete(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := g.OOMKills(); !errors.Is(err, cgroups.ErrGone) {
				t.Errorf("OOMKills of a removed group = %v, want ErrGone", err)
			}
		})
	}
}

// loaded is a group that has used memory and CPU and is frozen, so that its
// numbers stand still.
func loaded(t testing.TB) *Group {
	t.Helper()
	g := create(t, nil)
	cmd := command(t, g, "sh", "-c", `x=0123456789abcdef; i=0; while [ $i -lt 16 ]; do x="$x$x"; i=$((i+1)); done; echo ready; read x`)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ready [8]byte
	if _, err := out.Read(ready[:]); err != nil {
		t.Fatal(err)
	}
	if err := g.Freeze(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return g
}

// The numbers of a frozen group must be those that containerd's own library
// reads from it.
func TestStatAgreesWithContainerd(t *testing.T) {
	g := loaded(t)
	c, err := ctrcgroups.Load("/"+g.path.Rel().String(), ctrcgroups.WithMountpoint(mount))
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var s cgroups.Stats
	if err := g.Stat(&s); err != nil {
		t.Fatal(err)
	}
	same := func(what string, ours, theirs uint64) {
		t.Helper()
		if ours != theirs {
			t.Errorf("%s: %d, containerd says %d", what, ours, theirs)
		}
	}
	same("cpu usage", s.CPU.Usage/1000, m.CPU.UsageUsec)
	same("cpu user", s.CPU.User/1000, m.CPU.UserUsec)
	same("cpu system", s.CPU.Kernel/1000, m.CPU.SystemUsec)
	same("periods", s.CPU.Periods, m.CPU.NrPeriods)
	if s.Has&cgroups.HasMemoryStat == 0 {
		t.Skip("the rest needs the memory and pids controllers, which this hierarchy does not have")
	}
	same("pids", s.Pids.Current, m.Pids.Current)
	same("pids limit", s.Pids.Limit, m.Pids.Limit)
	same("memory", s.Memory.Memory.Usage, m.Memory.Usage)
	same("memory limit", s.Memory.Memory.Limit, m.Memory.UsageLimit)
	same("memory peak", s.Memory.Memory.Max, m.Memory.MaxUsage)
	same("oom kills", s.Memory.Events.OOMKill, m.MemoryEvents.OomKill)
	theirs, ours := reflect.ValueOf(m.Memory).Elem(), reflect.ValueOf(s.Memory.V2)
	names := map[string]string{
		"AnonTHP": "AnonThp", "PgFault": "Pgfault", "PgMajFault": "Pgmajfault", "WorkingsetNodeReclaim": "WorkingsetNodereclaim",
		"PgRefill": "Pgrefill", "PgScan": "Pgscan", "PgSteal": "Pgsteal", "PgActivate": "Pgactivate", "PgDeactivate": "Pgdeactivate",
		"PgLazyFree": "Pglazyfree", "PgLazyFreed": "Pglazyfreed", "THPFaultAlloc": "ThpFaultAlloc", "THPCollapseAlloc": "ThpCollapseAlloc",
	}
	for i := range ours.NumField() {
		name := ours.Type().Field(i).Name
		switch name {
		case "Kernel", "WorkingsetRefault", "WorkingsetActivate":
			continue // not there, and read from lines that the kernel no longer prints
		case "Slab", "SlabReclaimable", "SlabUnreclaimable":
			continue // the kernel's own, which reading changes
		}
		if n, ok := names[name]; ok {
			name = n
		}
		f := theirs.FieldByName(name)
		if !f.IsValid() {
			t.Errorf("containerd has no field %s", name)
			continue
		}
		same("memory.stat "+name, ours.Field(i).Uint(), f.Uint())
	}
}

func TestAWarmReadingAllocatesNothing(t *testing.T) {
	g := create(t, nil)
	var s cgroups.Stats
	if err := g.Stat(&s); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200, func() {
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Stat allocates %v times", n)
	}
	if n := g.StatFDs(); n > 48 {
		t.Errorf("%d descriptors, want at most 48", n)
	} else {
		t.Logf("%d descriptors", n)
	}
}

func TestPressureThatIsTurnedOffIsAbsent(t *testing.T) {
	g := create(t, nil)
	if _, err := os.Stat(file(g, "cgroup.pressure")); err != nil {
		t.Skip("this kernel has no cgroup.pressure (Linux 6.1, CONFIG_PSI)")
	}
	var s cgroups.Stats
	if err := g.Stat(&s); err != nil || s.Has&cgroups.HasCPUPressure == 0 {
		t.Fatalf("Stat = %v, has %b; want pressure", err, s.Has)
	}
	if err := os.WriteFile(file(g, "cgroup.pressure"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Stat(&s); err != nil || s.Has&cgroups.HasCPUPressure != 0 || s.Has&cgroups.HasCPU == 0 {
			t.Errorf("Stat = %v, has %b; want everything but pressure", err, s.Has)
		}
	}
}

func TestAControllerBelowABusyGroupIsNamed(t *testing.T) {
	require(t, "memory")
	parent := create(t, nil)
	start(t, parent, "sleep", "1000") // no internal process constraint
	_, err := Create(layout(t), parsePath(t, parent.path.Rel().String()+"/own"), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr[int64](1 << 20)},
	})
	if !errors.Is(err, cgroups.ErrNoController) || !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("Create = %v, want ErrNoController and EBUSY, naming memory", err)
	}
	if _, err := os.Stat(file(parent, "own")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	createAt(t, parsePath(t, parent.path.Rel().String()+"/own"), nil) // nothing asked for
}

func TestAThreadedGroupTakesNoContainer(t *testing.T) {
	p := newPath(t, "own")
	own := filepath.Join(mount, p.Rel().String())
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.type"), []byte("threaded"), 0); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{p.Rel().String(), filepath.Dir(p.Rel().String()) + "/other"} {
		if _, err := Create(layout(t), parsePath(t, at), nil); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("Create = %v, want EOPNOTSUPP", err)
		}
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
		g, err := Create(l, p, nil)
		if err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		res := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: ptr[int64](10), Access: "r"}}}
		if err := errors.Join(g.Set(res), g.Stat(&s), g.Kill(within(t, 5*time.Second)), g.Delete(within(t, 5*time.Second))); err != nil {
			t.Fatalf("life %d: %v", i, err)
		}
		g.Close()
		g.Close()
	}
	if after := len(ktest.FDs(os.Getpid())); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestUpdatesNeverTakeADeviceAwayForAMoment(t *testing.T) {
	g := create(t, nil)
	stop := filepath.Join(t.TempDir(), "stop")
	cmd := command(t, g, "sh", "-c", `while [ ! -e "$0" ]; do : </dev/null || exit 1; : >/dev/null || exit 1; done`, stop)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		list := []specs.LinuxDeviceCgroup{{Allow: i%2 == 0, Access: "rwm"}, {Allow: true, Type: "c", Major: ptr(int64(i)), Access: "rw"}}
		set(t, g, &specs.LinuxResources{Devices: list})
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		if _, ok := err.(*exec.ExitError); !ok {
			t.Fatal(err)
		}
		t.Errorf("an open of /dev/null failed: %v", err)
	}
}
