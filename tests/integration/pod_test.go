package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// startPod starts a first container and one that joins namespaces of it.
func startPod(t *testing.T, args []string, kinds ...specs.LinuxNamespaceType) (first, second *box) {
	t.Helper()
	id := fmt.Sprintf("pod%d", boxes.Add(1))
	first = startBox(t, boxSpec{id: id, pod: id, args: []string{"sh", "-c", "while :; do sleep 1000 & wait $!; done"}})
	second = joinPod(t, first, args, kinds...)
	return first, second
}

// joinPod starts one more container in the pod of the first.
func joinPod(t *testing.T, first *box, args []string, kinds ...specs.LinuxNamespaceType) *box {
	t.Helper()
	var opts []oci.SpecOpts
	for _, k := range kinds {
		name := map[specs.LinuxNamespaceType]string{
			specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts", specs.PIDNamespace: "pid",
		}[k]
		opts = append(opts, withNamespace(k, fmt.Sprintf("/proc/%d/ns/%s", first.pid(), name)))
	}
	pods.Lock()
	pods.users[first.shimPID]++
	pods.Unlock()
	t.Cleanup(func() { // after the end of that box, before the end of the first
		pods.Lock()
		pods.users[first.shimPID]--
		pods.Unlock()
	})
	b := newBox(t, boxSpec{daemon: first.d, pod: first.id, args: args, spec: opts})
	return b.start()
}

func TestAPodSharesNamespacesAndAShim(t *testing.T) {
	t.Parallel()
	first, second := startPod(t, nil, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace)
	if first.shimPID != second.shimPID {
		t.Errorf("shims %d and %d", first.shimPID, second.shimPID)
	}
	for ns, shared := range map[string]bool{"net": true, "ipc": true, "uts": true, "pid": false, "mnt": false} {
		a, b := first.ok("readlink", "/proc/self/ns/"+ns), second.ok("readlink", "/proc/self/ns/"+ns)
		if (a == b) != shared {
			t.Errorf("%s: %q and %q", ns, a, b)
		}
	}
	// They are separate in all else.
	second.ok("touch", "/tmp/mine")
	if r := first.exec("ls", "/tmp/mine"); r.code == 0 {
		t.Error("the first container sees a file of the second")
	}
	second.stop()
	if out := first.ok("echo", "alive"); out != "alive\n" {
		t.Errorf("the first container says %q", out)
	}
	first.stop()
}

func TestAPodSharesItsPIDNamespace(t *testing.T) {
	t.Parallel()
	first, second := startPod(t, []string{"sh", "-c", "echo $$; sleep 100000 & wait"}, specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace)
	if a, b := first.ok("readlink", "/proc/self/ns/pid"), second.ok("readlink", "/proc/self/ns/pid"); a != b {
		t.Errorf("pid: %q and %q", a, b)
	}
	second.out.waitFor(t, "\n")
	if strings.TrimSpace(second.out.String()) == "1" {
		t.Error("the second container is process 1")
	}
	if out := second.ok("cat", "/proc/1/cmdline"); !strings.Contains(out, "while :") {
		t.Errorf("process 1 is %q", out)
	}
	e := second.startExec(execSpec{args: []string{"sleep", "100000"}})
	// The end of a container ends its processes although their PID namespace
	// lives on, and nobody else's.
	second.kill(syscall.SIGKILL)
	second.wait()
	if code := e.finish().code; code != 137 {
		t.Errorf("exec: exit code %d", code)
	}
	if in := ktest.InCgroup(second.d.Cgroup(second.id)); len(in) > 0 {
		t.Errorf("alive after the exit of init: %v", in)
	}
	second.delete()
	first.ok("true")
	first.stop()
}

func TestContainersOfAPodComeAndGo(t *testing.T) {
	t.Parallel()
	first, second := startPod(t, nil, specs.NetworkNamespace)
	before := ktest.ReadFootprint(first.shimPID)
	for range 3 {
		third := joinPod(t, first, []string{"true"}, specs.NetworkNamespace, specs.PIDNamespace)
		if third.shimPID != first.shimPID {
			t.Errorf("shims %d and %d", first.shimPID, third.shimPID)
		}
		if code := third.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		third.delete()
	}
	first.steady(before)
	if incumbent() { // it does not find its socket once its first bundle is gone
		return
	}
	// The first may go before the second.
	first.stop()
	second.ok("true")
	second.stop()
}

func TestAFailedContainerLeavesThePodAlone(t *testing.T) {
	t.Parallel()
	first, second := startPod(t, nil, specs.NetworkNamespace)
	before := ktest.ReadFootprint(first.shimPID)
	for range 2 {
		bad := newBox(t, boxSpec{pod: first.id, args: []string{"nope"}})
		bad.shimPID = first.shimPID
		bad.failStart()
	}
	first.steady(before)
	first.ok("true")
	second.ok("true")
	second.stop()
	first.stop()
}
