package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// usage is what both versions of containerd's metrics have in common.
type usage struct {
	pids, pidsLimit     uint64
	memory, memoryLimit uint64 // bytes
	pageFaults          uint64
	cpu                 uint64 // ns
	oomKills            uint64
	v1                  *v1.Metrics
	v2                  *v2.Metrics
}

func (b *box) tryMetrics() (usage, error) {
	m, err := b.task.Metrics(b.ctx)
	if err != nil {
		return usage{}, err
	}
	v, err := typeurl.UnmarshalAny(m.Data)
	if err != nil {
		return usage{}, err
	}
	switch m := v.(type) {
	case *v1.Metrics:
		if m.Pids == nil || m.Memory == nil || m.Memory.Usage == nil || m.CPU == nil || m.CPU.Usage == nil {
			return usage{}, fmt.Errorf("incomplete: %v", m)
		}
		u := usage{
			pids: m.Pids.Current, pidsLimit: m.Pids.Limit,
			memory: m.Memory.Usage.Usage, memoryLimit: m.Memory.Usage.Limit,
			pageFaults: m.Memory.TotalPgFault, cpu: m.CPU.Usage.Total, v1: m,
		}
		if m.MemoryOomControl != nil {
			u.oomKills = m.MemoryOomControl.OomKill
		}
		return u, nil
	case *v2.Metrics:
		if m.Pids == nil || m.Memory == nil || m.CPU == nil {
			return usage{}, fmt.Errorf("incomplete: %v", m)
		}
		u := usage{
			pids: m.Pids.Current, pidsLimit: m.Pids.Limit, memory: m.Memory.Usage, memoryLimit: m.Memory.UsageLimit,
			pageFaults: m.Memory.Pgfault, cpu: m.CPU.UsageUsec * 1000, v2: m,
		}
		if m.MemoryEvents != nil {
			u.oomKills = m.MemoryEvents.OomKill
		}
		return u, nil
	default:
		return usage{}, fmt.Errorf("metrics of type %T", v)
	}
}

func (b *box) metrics() usage {
	b.t.Helper()
	u, err := b.tryMetrics()
	if err != nil {
		b.t.Fatalf("metrics: %v", err)
	}
	return u
}

// file is the path of a file of the container's cgroup: name1 on v1, name2
// below the unified hierarchy.
func (b *box) cgroupFile(controller, name1, name2 string) string {
	b.t.Helper()
	dir, err := ktest.CgroupDir(b.pid(), controller)
	if err != nil {
		b.t.Fatal(err)
	}
	if !strings.HasSuffix(dir, b.d.Cgroup(b.id)) {
		b.t.Fatalf("the %s cgroup of init is %s, want %s", controller, dir, b.d.Cgroup(b.id))
	}
	if ktest.CgroupV2() {
		return filepath.Join(dir, name2)
	}
	return filepath.Join(dir, name1)
}

// number reads a file of the container's cgroup.
func (b *box) number(controller, name1, name2 string) uint64 {
	b.t.Helper()
	n, err := ktest.ReadUint(b.cgroupFile(controller, name1, name2))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// kernelUsage reads the cgroup's own files.
func (b *box) kernelUsage() usage {
	b.t.Helper()
	u := usage{
		pids:        b.number("pids", "pids.current", "pids.current"),
		pidsLimit:   b.number("pids", "pids.max", "pids.max"),
		memory:      b.number("memory", "memory.usage_in_bytes", "memory.current"),
		memoryLimit: b.number("memory", "memory.limit_in_bytes", "memory.max"),
	}
	if u.pidsLimit == ^uint64(0) {
		u.pidsLimit = 0 // in the metrics, no limit is 0
	}
	stat, key := b.cgroupFile("memory", "memory.stat", "memory.stat"), "total_pgfault"
	if ktest.CgroupV2() {
		key = "pgfault"
	}
	var err error
	if u.pageFaults, err = ktest.ReadKey(stat, key); err != nil {
		b.t.Fatal(err)
	}
	if ktest.CgroupV2() {
		usec, err := ktest.ReadKey(b.cgroupFile("cpu", "", "cpu.stat"), "usage_usec")
		if err != nil {
			b.t.Fatal(err)
		}
		u.cpu = usec * 1000
	} else {
		u.cpu = b.number("cpuacct", "cpuacct.usage", "")
	}
	return u
}

func TestStatsAreTheKernelsOwn(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"probe", "hold", strconv.Itoa(48 << 20)},
		spec: limits(256<<20, 77),
	})
	b.out.waitFor(t, "holding")
	if err := b.task.Pause(b.ctx); err != nil {
		t.Fatal(err)
	}
	// The kernel counts pages in batches and lazily, so wait for two equal
	// readings around ours.
	ktest.Eventually(t, prompt, "steady counters", func() error {
		before := b.kernelUsage()
		got := b.metrics()
		after := b.kernelUsage()
		got.v1, got.v2 = nil, nil
		if before != after {
			return errors.New("they change")
		}
		if got != after {
			return fmt.Errorf("stats %+v, kernel %+v", got, after)
		}
		return nil
	})
	u := b.metrics()
	if u.memory < 48<<20 || u.memory > 256<<20 || u.memoryLimit != 256<<20 || u.pidsLimit != 77 || u.cpu == 0 {
		t.Errorf("got %+v", u)
	}
	if m := u.v1; m != nil {
		stat := readFile(b.cgroupFile("memory", "memory.stat", ""))
		for key, got := range map[string]uint64{
			"cache": m.Memory.Cache, "rss": m.Memory.RSS, "total_rss": m.Memory.TotalRSS,
			"pgpgin": m.Memory.PgPgIn, "pgfault": m.Memory.PgFault, "inactive_anon": m.Memory.InactiveAnon,
			"total_active_anon": m.Memory.TotalActiveAnon, "total_inactive_file": m.Memory.TotalInactiveFile,
			"hierarchical_memory_limit": m.Memory.HierarchicalMemoryLimit,
		} {
			if !strings.Contains("\n"+stat, fmt.Sprintf("\n%s %d\n", key, got)) {
				t.Errorf("%s is %d, not in\n%s", key, got, stat)
			}
		}
		var sum uint64
		for _, n := range m.CPU.Usage.PerCPU {
			sum += n
		}
		if sum != m.CPU.Usage.Total {
			t.Errorf("the CPUs' times add up to %d, total %d", sum, m.CPU.Usage.Total)
		}
	}
	if err := b.task.Resume(b.ctx); err != nil {
		t.Fatal(err)
	}
	b.stop()
}

func TestStatsFollowTheContainer(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "echo up; exec sleep 100000"}})
	b.out.waitFor(t, "up")
	before := b.metrics()
	e := b.startExec(execSpec{args: []string{"probe", "hold", strconv.Itoa(32 << 20)}})
	e.out.waitFor(t, "holding")
	during := b.metrics()
	if during.memory < 32<<20 || during.pids <= before.pids || during.cpu <= before.cpu {
		t.Errorf("before %+v, with 32 MiB more %+v", before, during)
	}
	if err := e.p.Kill(b.ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.finish()
	if u := b.metrics(); u.pids != 1 || u.cpu < during.cpu {
		t.Errorf("before %+v, after %+v", before, u)
	}
	b.stop()
}

// kubernetes asks after the exit, to tell whether it was for lack of memory.
func TestStatsAreServedAfterTheExitUntilDelete(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it reads the cgroup, which is empty or gone by then")
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "probe hold 16000000"}})
	b.out.waitFor(t, "holding")
	during := b.metrics()
	b.kill(syscall.SIGKILL)
	b.wait()
	events.wait(t, b.id, "exit 137")
	for range 2 {
		if u := b.metrics(); u.cpu < during.cpu || u.pageFaults < during.pageFaults {
			t.Errorf("during %+v, after %+v", during, u)
		}
	}
	b.delete()
	_, err := b.task.Metrics(b.ctx)
	wantError(t, err, errdefs.ErrNotFound)
}

// containerd/containerd#8893: the kill for lack of memory must be told apart
// from others, so its event comes first.
func TestOutOfMemoryIsReportedBeforeTheExit(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{args: []string{"probe", "eat"}, spec: limits(32<<20, 0)})
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	have := events.wait(t, b.id, "exit 137")
	if incumbent() { // it sends the two independently
		have = events.wait(t, b.id, "oom")
		if count(have, "oom") != 1 {
			t.Errorf("events %q", have)
		}
	} else {
		wantOrder(t, have, "start", "oom", "exit 137")
		if u := b.metrics(); u.oomKills != 1 {
			t.Errorf("%d kills in the statistics after the exit", u.oomKills)
		}
	}
	b.delete()
}

func TestOutOfMemoryOfAChildIsReported(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "probe eat; echo code $?; sleep 100000"},
		spec: limits(32<<20, 0),
	})
	b.out.waitFor(t, "code 137\n")
	events.wait(t, b.id, "oom")
	if r := b.exec("probe", "eat"); r.code != 137 {
		t.Errorf("exec: %v", r)
	}
	if n := b.metrics().oomKills; n != 2 {
		t.Errorf("%d kills counted, want 2", n)
	}
	if s := b.status(); s != containerd.Running {
		t.Errorf("status %s", s)
	}
	b.stop()
}

// google/gvisor#9723: the limit may be that of a group of containers.
func TestOutOfMemoryByTheParentsLimitIsReported(t *testing.T) {
	t.Parallel()
	parent := "/" + shared.Namespace + "/parent"
	dir := ""
	for _, m := range ktest.CgroupMounts() {
		if m.Has("memory") || ktest.CgroupV2() {
			dir = filepath.Join(m.Dir, parent)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ktest.RemoveCgroup(parent) })
	limit := "memory.limit_in_bytes"
	if ktest.CgroupV2() {
		limit = "memory.max"
		for _, d := range []string{filepath.Dir(dir), dir} {
			if err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+memory +pids"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, limit), []byte("33554432"), 0); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, boxSpec{args: []string{"probe", "eat"}})
	b.edit(func(s *specs.Spec) { s.Linux.CgroupsPath = parent + "/" + b.id })
	b.start()
	if code := b.wait(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	if incumbent() {
		events.wait(t, b.id, "oom")
	} else {
		wantOrder(t, events.wait(t, b.id, "exit 137"), "start", "oom", "exit 137")
	}
	b.delete()
	(ktest.Residue{Cgroup: parent + "/" + b.id}).Check(t, prompt)
}
