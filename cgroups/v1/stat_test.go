package cgroup1

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	ctrcgroups "github.com/containerd/cgroups/v3/cgroup1"
	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// loaded is a group that has used memory, CPU and processes, and is frozen so
// that its numbers stand still.
func loaded(t testing.TB) *Group {
	t.Helper()
	g := create(t, limits(0))
	cmd := start(t, g, "sh", "-c", `x=0123456789abcdef; i=0; while [ $i -lt 16 ]; do x="$x$x"; i=$((i+1)); done; sleep 1000; true`)
	deadline := time.Now().Add(10 * time.Second)
	for {
		pids, err := g.Procs()
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 2 { // the shell waits for its sleep: it is done
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d did not get to its sleep", cmd.Process.Pid)
		}
		time.Sleep(time.Millisecond)
	}
	if err := g.Freeze(within(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return g
}

// undisturbed has read done until the group's numbers are the same before it
// and after it. In a frozen group, too, the kernel does things late: it gives
// back what a process that ended had in kernel memory (RCU), and counts a period
// of the CPU quota when its timer fires.
func undisturbed(t *testing.T, g *Group, read func()) {
	t.Helper()
	numbers := func() string {
		return text(t, g, "memory", "memory.kmem.usage_in_bytes") + text(t, g, "memory", "memory.usage_in_bytes") +
			text(t, g, "cpu", "cpu.stat")
	}
	for range 200 {
		before := numbers()
		read()
		if numbers() == before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the numbers of a frozen group do not stand still")
}

func TestStatSaysWhatTheFilesSay(t *testing.T) {
	g := loaded(t)
	var s cgroups.Stats
	number := func(controller, file string) uint64 {
		v, err := strconv.ParseUint(text(t, g, controller, file), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	numbers := []struct {
		controller, file string
		got              *uint64
		want             uint64
	}{
		{"cpuacct", "cpuacct.usage", &s.CPU.Usage, 0},
		{"pids", "pids.current", &s.Pids.Current, 0},
		{"pids", "pids.max", &s.Pids.Limit, 0},
		{"memory", "memory.usage_in_bytes", &s.Memory.Memory.Usage, 0},
		{"memory", "memory.limit_in_bytes", &s.Memory.Memory.Limit, 0},
		{"memory", "memory.max_usage_in_bytes", &s.Memory.Memory.Max, 0},
		{"memory", "memory.failcnt", &s.Memory.Memory.Failcnt, 0},
		{"memory", "memory.memsw.usage_in_bytes", &s.Memory.Swap.Usage, 0},
		{"memory", "memory.memsw.limit_in_bytes", &s.Memory.Swap.Limit, 0},
		{"memory", "memory.memsw.max_usage_in_bytes", &s.Memory.Swap.Max, 0},
		{"memory", "memory.kmem.usage_in_bytes", &s.Memory.Kernel.Usage, 0},
		{"memory", "memory.kmem.tcp.limit_in_bytes", &s.Memory.KernelTCP.Limit, 0},
	}
	undisturbed(t, g, func() {
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
		for i := range numbers {
			numbers[i].want = number(numbers[i].controller, numbers[i].file)
		}
	})
	for _, n := range numbers {
		if *n.got != n.want {
			t.Errorf("%s is %d, Stat says %d", n.file, n.want, *n.got)
		}
	}
	if s.CPU.Usage == 0 || s.Memory.V1.RSS == 0 || s.Pids.Current != 2 {
		t.Errorf("the group used nothing: %+v", s)
	}
	want := cgroups.HasCPU | cgroups.HasPerCPU | cgroups.HasThrottling | cgroups.HasMemory | cgroups.HasMemoryPeak | cgroups.HasMemoryStat |
		cgroups.HasSwap | cgroups.HasOOMControl | cgroups.HasPids | cgroups.HasBlkio
	if s.Has&want != want {
		t.Errorf("Has is %b, want at least %b", s.Has, want)
	}
	if s.Has&(cgroups.HasMemoryEvents|cgroups.HasIO|cgroups.HasCPUPressure) != 0 {
		t.Errorf("Has is %b: something of version 2 is in it", s.Has)
	}
}

// The numbers of a frozen group must be those that containerd's own library
// reads from it.
func TestStatAgreesWithContainerd(t *testing.T) {
	g := loaded(t)
	c, err := ctrcgroups.Load(ctrcgroups.StaticPath(g.path.String()), ctrcgroups.WithHierarchy(ctrHierarchy))
	if err != nil {
		t.Fatal(err)
	}
	var m *v1.Metrics
	var s cgroups.Stats
	undisturbed(t, g, func() {
		if m, err = c.Stat(ctrcgroups.IgnoreNotExist); err != nil {
			t.Fatal(err)
		}
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
	})
	same := func(what string, ours, theirs uint64) {
		t.Helper()
		if ours != theirs {
			t.Errorf("%s: %d, containerd says %d", what, ours, theirs)
		}
	}
	same("cpu total", s.CPU.Usage, m.CPU.Usage.Total)
	same("cpu user", s.CPU.User, m.CPU.Usage.User)
	same("cpu kernel", s.CPU.Kernel, m.CPU.Usage.Kernel)
	if !reflect.DeepEqual(s.CPU.PerCPU, m.CPU.Usage.PerCPU) {
		t.Errorf("per CPU: %v, containerd says %v", s.CPU.PerCPU, m.CPU.Usage.PerCPU)
	}
	same("periods", s.CPU.Periods, m.CPU.Throttling.Periods)
	same("throttled periods", s.CPU.ThrottledPeriods, m.CPU.Throttling.ThrottledPeriods)
	same("throttled time", s.CPU.ThrottledTime, m.CPU.Throttling.ThrottledTime)
	same("pids", s.Pids.Current, m.Pids.Current)
	same("pids limit", s.Pids.Limit, m.Pids.Limit)
	for what, pair := range map[string][2]*cgroups.Counter{
		"memory":     {&s.Memory.Memory, {Usage: m.Memory.Usage.Usage, Limit: m.Memory.Usage.Limit, Max: m.Memory.Usage.Max, Failcnt: m.Memory.Usage.Failcnt}},
		"swap":       {&s.Memory.Swap, {Usage: m.Memory.Swap.Usage, Limit: m.Memory.Swap.Limit, Max: m.Memory.Swap.Max, Failcnt: m.Memory.Swap.Failcnt}},
		"kernel":     {&s.Memory.Kernel, {Usage: m.Memory.Kernel.Usage, Limit: m.Memory.Kernel.Limit, Max: m.Memory.Kernel.Max, Failcnt: m.Memory.Kernel.Failcnt}},
		"kernel tcp": {&s.Memory.KernelTCP, {Usage: m.Memory.KernelTCP.Usage, Limit: m.Memory.KernelTCP.Limit, Max: m.Memory.KernelTCP.Max, Failcnt: m.Memory.KernelTCP.Failcnt}},
	} {
		if *pair[0] != *pair[1] {
			t.Errorf("%s: %+v, containerd says %+v", what, *pair[0], *pair[1])
		}
	}
	// Their fields and ours have the same names, but for the case of some.
	theirs := reflect.ValueOf(m.Memory).Elem()
	ours := reflect.ValueOf(s.Memory.V1)
	for i := range ours.NumField() {
		name := ours.Type().Field(i).Name
		f := theirs.FieldByName(name)
		if !f.IsValid() {
			if name != "Shmem" && name != "TotalShmem" && name != "Swap" && name != "TotalSwap" {
				t.Errorf("containerd has no field %s", name)
			}
			continue
		}
		if f.Kind() == reflect.Uint64 {
			same("memory.stat "+name, ours.Field(i).Uint(), f.Uint())
		}
	}
	same("oom kills", s.Memory.OOMControl.Kill, m.MemoryOomControl.OomKill)
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
}

func TestTheDescriptorsOfAGroupAreBounded(t *testing.T) {
	g := create(t, nil)
	if n := g.StatFDs(); n > 16 {
		t.Errorf("%d descriptors before the first reading, want at most one for each hierarchy", n)
	}
	var s cgroups.Stats
	for range 10 {
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.StatFDs(); n > 48 {
		t.Errorf("%d descriptors, want at most 48", n)
	} else {
		t.Logf("%d descriptors", n)
	}
}

func TestStatIsOrderlyAtTheEnd(t *testing.T) {
	t.Run("removed before the first reading", func(t *testing.T) {
		g := create(t, nil)
		if err := g.Delete(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		var s cgroups.Stats
		if err := g.Stat(&s); !errors.Is(err, cgroups.ErrGone) {
			t.Errorf("Stat = %v, want ErrGone", err)
		}
	})
	t.Run("removed and made again", func(t *testing.T) {
		g := create(t, nil)
		var s cgroups.Stats
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
		if err := g.Delete(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		createAt(t, g.path, nil)
		if err := g.Stat(&s); !errors.Is(err, cgroups.ErrGone) {
			t.Errorf("Stat = %v, want ErrGone: it is another group now", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		g := create(t, nil)
		g.Close()
		var s cgroups.Stats
		if err := g.Stat(&s); err == nil {
			t.Error("Stat of a closed group succeeded")
		}
	})
	t.Run("closed meanwhile", func(t *testing.T) {
		g := create(t, nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var s cgroups.Stats
			for g.Stat(&s) == nil {
			}
		}()
		g.Close()
		<-done
	})
}

func TestSingleReadings(t *testing.T) {
	g := loaded(t)
	if n, err := g.PidsCurrent(); n != 2 || err != nil {
		t.Errorf("PidsCurrent = %d, %v; want 2", n, err)
	}
	if n, err := g.MemoryUsage(); n == 0 || err != nil {
		t.Errorf("MemoryUsage = %d, %v", n, err)
	}
}

func TestThrottlingIsCounted(t *testing.T) {
	g := create(t, &specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr[int64](1000), Period: ptr[uint64](10000)}})
	start(t, g, "sh", "-c", "while :; do :; done")
	var s cgroups.Stats
	deadline := time.Now().Add(10 * time.Second)
	for s.CPU.ThrottledPeriods == 0 || s.CPU.ThrottledTime == 0 {
		if err := g.Stat(&s); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("never throttled: %+v", s.CPU)
		}
		time.Sleep(time.Millisecond)
	}
}

// captured are files of other kernels and hosts than this one.
var captured = map[string]string{
	"blkio":        "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 8192\n8:0 Async 4096\n8:0 Discard 0\n8:0 Total 12288\nTotal 12288\n",
	"blkio time":   "8:0 12\n8:16 13\n",
	"memory.stat":  "cache 11492564992\nrss 1930993664\nrss_huge 0\nmapped_file 1\nswap 5\nbrand_new_key 7\ntotal_rss 9\nhierarchical_memory_limit 9223372036854771712\n",
	"cpuacct.stat": "user 452278264\nsystem 291429664\n",
	"rdma.current": "mlx4_0 hca_handle=2 hca_object=2000\nocrdma1 hca_handle=3 hca_object=max\n",
}

func TestParsersReadCapturedFiles(t *testing.T) {
	var s cgroups.Stats
	s.Reset(1)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	check(parseBlkio(&s, cgroups.IOServiceBytes, []byte(captured["blkio"])))
	check(parseBlkio(&s, cgroups.IOTime, []byte(captured["blkio time"])))
	if n := len(s.IO.Entries); n != 8 || s.IO.Entries[1] != (cgroups.IOEntry{Kind: cgroups.IOServiceBytes, Op: cgroups.OpWrite, Major: 8, Value: 8192}) ||
		s.IO.Entries[7] != (cgroups.IOEntry{Kind: cgroups.IOTime, Major: 8, Minor: 16, Value: 13}) {
		t.Errorf("blkio: %+v", s.IO.Entries)
	}
	check(parseMemoryStat(&s, []byte(captured["memory.stat"])))
	if m := s.Memory.V1; m.Cache != 11492564992 || m.Swap != 5 || m.TotalRSS != 9 {
		t.Errorf("memory.stat: %+v", m)
	}
	check(parseCpuacctStat(&s, []byte(captured["cpuacct.stat"])))
	if s.CPU.User != 4522782640000000 {
		t.Errorf("user time is %d ns", s.CPU.User)
	}
	check(cgroups.ParseRdmaCurrent(&s, []byte(captured["rdma.current"])))
	if len(s.Rdma) != 2 || s.Rdma[1].Device != "ocrdma1" || s.Rdma[1].Handles != 3 {
		t.Errorf("rdma: %+v", s.Rdma)
	}
	for name, bad := range map[string]error{
		"no number":  parseMemoryStat(&s, []byte("cache x\n")),
		"no value":   parseCPUStat(&s, []byte("nr_periods\n")),
		"three":      parseCpuacctStat(&s, []byte("user 1 2\n")),
		"no device":  parseBlkio(&s, 0, []byte("sda Read 1\n")),
		"per cpu":    parseUsagePercpu(&s, []byte("1 2 x")),
		"oom":        parseOOMControl(&s.Memory.OOMControl, []byte("oom_kill -1\n")),
		"rdma field": cgroups.ParseRdmaMax(&s, []byte("mlx hca_handle\n")),
	} {
		if bad == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, text := range captured {
		f.Add([]byte(text))
	}
	f.Add([]byte("a *:* rwm\n"))
	f.Add([]byte("c 1:3 rwm\nb *:* m\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s cgroups.Stats
		s.Reset(1)
		for _, file := range statTable() {
			if file.Parse != nil {
				_ = file.Parse(&s, text)
			}
		}
		set, err := parseDevicesList(text)
		if err != nil || set.AllowAll {
			return
		}
		// What was read is written as it was read.
		for _, r := range set.Except {
			if again, ok := parseDevice([]byte(r.DeviceID.String() + " " + r.Access.String())); !ok || again != r {
				t.Errorf("%v reads back as %v", r, again)
			}
		}
	})
}

// A file that is there and cannot be read is an error, and no zero.
func TestAnUnreadableFileIsAnError(t *testing.T) {
	g := create(t, nil)
	var r cgroups.Reader
	err := r.Open(g.path.String(), []cgroups.StatFile{{Controller: "devices", Name: "devices.allow"}},
		func(cgroups.StatFile) *pathsafe.Dir { return g.member("devices").dir })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s cgroups.Stats
	if err := r.Read(&s); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "devices.allow") {
		t.Errorf("Read = %v, want EINVAL that names the file", err)
	}
}
