package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// containerd/containerd#12344: shims, sockets and bundles were left under
// churn.
func TestManyPodsComeAndGo(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range 12 {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				first, second := startPod(t, []string{"sh", "-c", "exit 3"}, specs.NetworkNamespace)
				if code := second.wait(); code != 3 {
					t.Errorf("exit code %d", code)
				}
				second.delete()
				first.stop()
			})
		})
	}
	wg.Wait()
}

// containerd/containerd#3380: the shim is a better victim than the daemon.
func TestTheShimsOOMScoreIsOneAboveTheDaemons(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	score := func(pid int) (n int) {
		fmt.Sscan(readFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)), &n)
		return n
	}
	want(t, "oom_score_adj of the shim", score(b.shimPID), score(b.d.PID())+1)
	b.stop()
}

// containerd/containerd#8931: a file that is open below the root held up the
// deletion.
func TestAnOpenFileDoesNotHoldUpTheDeletion(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	dir, err := os.Open(fmt.Sprintf("/proc/%d/root/etc", b.pid()))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	b.kill(syscall.SIGKILL)
	b.wait()
	if incumbent() { // whose mount is on the host and busy
		dir.Close()
	}
	b.delete()
}

func TestTheTaskAPIAnswersForUnknownTasks(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	shim, err := b.d.Shim(b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	for name, call := range map[string]func() error{
		"State":  func() error { _, err := shim.State(b.ctx, &task.StateRequest{ID: "nobody"}); return err },
		"Start":  func() error { _, err := shim.Start(b.ctx, &task.StartRequest{ID: "nobody"}); return err },
		"Delete": func() error { _, err := shim.Delete(b.ctx, &task.DeleteRequest{ID: "nobody"}); return err },
		"Pids":   func() error { _, err := shim.Pids(b.ctx, &task.PidsRequest{ID: "nobody"}); return err },
		"Kill":   func() error { _, err := shim.Kill(b.ctx, &task.KillRequest{ID: "nobody", Signal: 9}); return err },
		"Wait":   func() error { _, err := shim.Wait(b.ctx, &task.WaitRequest{ID: "nobody"}); return err },
		"Stats":  func() error { _, err := shim.Stats(b.ctx, &task.StatsRequest{ID: "nobody"}); return err },
		"State of an exec": func() error {
			_, err := shim.State(b.ctx, &task.StateRequest{ID: b.id, ExecID: "nobody"})
			return err
		},
		"Start of an exec": func() error {
			_, err := shim.Start(b.ctx, &task.StartRequest{ID: b.id, ExecID: "nobody"})
			return err
		},
	} {
		if err := errgrpc.ToNative(call()); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v, want not found", name, err)
		}
	}
	// A shim with tasks stays.
	if _, err := shim.Shutdown(b.ctx, &task.ShutdownRequest{ID: b.id}); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	b.ok("true")
	b.stop()
}

func TestCreateOfAnExistingTaskIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	shim, err := b.d.Shim(b.id)
	if err != nil {
		t.Fatal(err)
	}
	defer shim.Close()
	_, err = shim.Create(b.ctx, &task.CreateTaskRequest{ID: b.id, Bundle: b.d.Bundle(b.id)})
	wantError(t, err, nil)
	b.ok("true")
	b.stop()
}

// The daemon asks the binary what it can do before it makes a container with
// id-mapped mounts, and the CRI plugin at its start.
func TestInfoTellsVersionAndFeatures(t *testing.T) {
	t.Parallel()
	name := ctd.Shim
	if incumbent() {
		name = "containerd-shim-runc-v2"
	}
	cmd := exec.Command(filepath.Join(binDir, name), "-info")
	cmd.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var info types.RuntimeInfo
	if err := proto.Unmarshal(out, &info); err != nil {
		t.Fatal(err)
	}
	want(t, "name", info.Name, runtimeName)
	if info.Version == nil || info.Features == nil {
		t.Fatalf("got %v", &info)
	}
	v, err := typeurl.UnmarshalAny(info.Features)
	if err != nil {
		t.Fatal(err)
	}
	f, ok := v.(*features.Features)
	if !ok || f.Linux == nil || len(f.Linux.Namespaces) < 7 || len(f.MountOptions) == 0 {
		text, _ := json.Marshal(v)
		t.Errorf("features %s", short(string(text)))
	}
}

// containerd's own profile, and one that denies what the test does.
func TestSeccompProfiles(t *testing.T) {
	t.Parallel()
	states := bothStates(t, seccomp.WithDefaultProfile())
	each(t, states, func(t *testing.T, s state) { want(t, "mode", s.Status["Seccomp"], "2") })
	b := startBox(t, boxSpec{spec: edit(func(s *specs.Spec) {
		arch := map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}
		s.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Architectures: []specs.Arch{arch[goarch]},
			Syscalls:      []specs.LinuxSyscall{{Names: []string{"mkdir", "mkdirat"}, Action: specs.ActErrno, ErrnoRet: ptr(uint(syscall.EXDEV))}},
		}
	})})
	if r := b.exec("mkdir", "/tmp/x"); r.code == 0 || !strings.Contains(r.err, "cross-device") && !strings.Contains(r.err, "Invalid cross-device") {
		t.Errorf("a denied call: %v", r)
	}
	b.ok("touch", "/tmp/x")
	b.stop()
}

// A user namespace of its own: root inside is nobody outside.
func TestAUserNamespaceMapsRoot(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "probe state; exec sleep 100000"},
		spec: append(edit(func(s *specs.Spec) {
			m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
			s.Linux.UIDMappings, s.Linux.GIDMappings = m, m
		}), withNamespace(specs.UserNamespace, "")),
	})
	b.out.waitFor(t, "\n")
	for who, s := range map[string]state{"init": parseState(t, b.out.String()), "exec": parseState(t, b.ok("probe", "state"))} {
		want(t, who+": uid", s.UID, 0)
		want(t, who+": capabilities", s.Status["CapEff"], "00000000a80425fb")
		if s.Namespaces["user"] == readLink("/proc/self/ns/user") {
			t.Errorf("%s is in the host's user namespace", who)
		}
	}
	if uids := ktest.StatusField(b.pid(), "Uid"); uids != "100000\t100000\t100000\t100000" {
		t.Errorf("on the host init is %q", uids)
	}
	b.stop()
}
