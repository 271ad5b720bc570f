package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ibex-run/ibex/internal/ktest"
)

// soak skips a test of minutes unless it is asked for, and gives the factor by
// which to multiply: 1 is the length whose figures are in docs/reliability.md.
func soak(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("IBEX_SOAK"))
	if err != nil || n < 1 {
		t.Skip("IBEX_SOAK is not set to a number of rounds")
	}
	return n
}

// kib reads a field of a process's memory in KiB.
func kib(t *testing.T, pid int, file, field string) int {
	t.Helper()
	for line := range strings.Lines(readFile(fmt.Sprintf("/proc/%d/%s", pid, file))) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field+":" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s of process %d has no %s", file, pid, field)
	return 0
}

// level is what must not grow.
type level struct {
	fds, threads, private, zombies int
}

func levelOf(t *testing.T, pid int) (l level) {
	t.Helper()
	l.fds, l.threads = len(ktest.FDs(pid)), ktest.Threads(pid)
	l.private = kib(t, pid, "smaps_rollup", "Private_Dirty")
	for _, p := range ktest.Children(pid) {
		if p.State == 'Z' {
			l.zombies++
		}
	}
	return l
}

func (l level) String() string {
	return fmt.Sprintf("%d descriptors, %d threads, %d KiB private dirty, %d zombies", l.fds, l.threads, l.private, l.zombies)
}

// moby/moby#39118, fuweid/embedshim#22, containerd/containerd#9217
func TestSoakExecs(t *testing.T) {
	rounds := soak(t)
	b := startBox(t, boxSpec{})
	b.ctx = b.d.Context(context.Background()) // the box's own ends in a minute
	one := func(i int) {
		s := execSpec{args: []string{"true"}, tty: i%4 == 1}
		if i%4 == 3 {
			p, err := b.tryExec(s) // never started
			if err == nil {
				_, err = p.p.Delete(b.ctx)
			}
			if err != nil {
				t.Error(err)
			}
			return
		}
		p := b.startExec(s)
		if code := p.finish().code; code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	for i := range 200 {
		one(i)
	}
	fds := ktest.ReadFootprint(b.shimPID)
	before := levelOf(t, b.shimPID)
	t.Logf("after 200 execs: %v", before)
	began := time.Now()
	for i := range 2000 * rounds {
		one(i)
		if t.Failed() {
			return
		}
	}
	took := time.Since(began)
	b.steady(fds)
	after := levelOf(t, b.shimPID)
	t.Logf("after %d more in %v: %v", 2000*rounds, took.Round(time.Second), after)
	// Go's heap may differ by a collection, and threads cost a stack each.
	if after.private > before.private+1536 || after.zombies > 0 {
		t.Errorf("before %v, after %v", before, after)
	}
	b.stop()
}

// containerd/containerd#12344, containerd/containerd#13692
func TestSoakPods(t *testing.T) {
	rounds := soak(t)
	d := ownDaemon(t)
	count := func() map[string]int {
		mounts := len(ktest.Mounts())
		sockets, _ := filepath.Glob(d.SocketDir() + "/*")
		bundles, _ := filepath.Glob(d.Dir + "/state/io.containerd.runtime.v2.task/*/*")
		groups := 0
		for _, c := range ktest.CgroupDirs("/" + d.Namespace) {
			below, _ := filepath.Glob(c + "/*/cgroup.procs")
			groups += len(below)
		}
		procs := 0
		for _, p := range ktest.Procs() {
			if ktest.HasEnv(p.PID, scratch.Env()) && strings.Contains(readFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)), d.Namespace) {
				procs++
			}
		}
		return map[string]int{"mounts": mounts, "sockets": len(sockets), "bundles": len(bundles), "cgroups": groups, "processes": procs}
	}
	before := count()
	began := time.Now()
	var wg sync.WaitGroup
	next := make(chan int)
	var mu sync.Mutex
	var times []time.Duration
	for range 8 {
		wg.Go(func() {
			for i := range next {
				at := time.Now()
				ok := t.Run(strconv.Itoa(i), func(t *testing.T) {
					pod := fmt.Sprintf("soak%d", i)
					first := startBox(t, boxSpec{daemon: d, id: pod, pod: pod, null: true})
					second := joinPod(t, first, nil)
					second.stopNow()
					first.stopNow()
				})
				mu.Lock()
				times = append(times, time.Since(at))
				mu.Unlock()
				if !ok {
					return
				}
			}
		})
	}
	for i := range 500 * rounds {
		next <- i
	}
	close(next)
	wg.Wait()
	var after map[string]int
	err := ktest.Poll(prompt, func() error {
		after = count()
		for k, n := range after {
			if n > before[k] {
				return fmt.Errorf("%s: %d before, %d after", k, before[k], n)
			}
		}
		return nil
	})
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	t.Logf("%d pods of two containers, 8 at a time, in %v; a pod took %v (median), %v (99th percentile)\nbefore %v\nafter %v",
		len(times), time.Since(began).Round(time.Second), times[len(times)/2].Round(time.Millisecond), times[len(times)*99/100].Round(time.Millisecond), before, after)
	if err != nil {
		t.Error(err)
	}
}

// stopNow ends the container without streams.
func (b *box) stopNow() {
	b.t.Helper()
	b.kill(syscall.SIGKILL)
	b.wait()
	b.delete()
}
