package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// nodeDaemon starts a containerd, and with it shims, that see this text as
// /etc/ibex/config.toml, in a mount namespace of their own.
func nodeDaemon(t *testing.T, text string) *ctd.Daemon {
	t.Helper()
	notIncumbent(t, "it has no configuration of the node")
	dir, err := os.MkdirTemp(scratch.Dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	etc, bin := filepath.Join(dir, "etc"), filepath.Join(dir, "bin")
	if err := os.MkdirAll(filepath.Join(etc, "ibex"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(etc, "ibex/config.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(bin, 0o711); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(binDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.Link(filepath.Join(binDir, n.Name()), filepath.Join(bin, n.Name())); err != nil && n.Name() != "containerd" {
			target, rerr := os.Readlink(filepath.Join(binDir, n.Name()))
			if rerr != nil || os.Symlink(target, filepath.Join(bin, n.Name())) != nil {
				t.Fatal(err)
			}
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
exec unshare --mount sh -c 'mount -t overlay node -o lowerdir=%s:/etc /etc && exec %s "$@"' sh "$@"
`, etc, filepath.Join(binDir, "containerd"))
	if err := os.Remove(filepath.Join(bin, "containerd")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "containerd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return ownDaemonOf(t, bin)
}

// runtimeOptions gives a container options, as lines of TOML.
func runtimeOptions(lines ...string) containerd.NewContainerOpts {
	return containerd.WithRuntime(runtimeName, &runtimeoptions.Options{ConfigBody: []byte(strings.Join(lines, "\n"))})
}

// ownCgroup makes a cgroup in every hierarchy and returns its path.
func ownCgroup(t *testing.T, name string) string {
	t.Helper()
	path := "/" + scratch.Name() + "/" + name
	for _, m := range ktest.CgroupMounts() {
		dir := filepath.Join(m.Dir, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		// A new cpuset has no CPUs and takes nobody - cpusets.rst.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if m.Has("cpuset") {
				copyUp(t, dir, f)
			}
		}
	}
	t.Cleanup(func() {
		if err := ktest.RemoveCgroup(path); err != nil {
			t.Error(err)
		}
	})
	return path
}

func copyUp(t *testing.T, dir, file string) {
	t.Helper()
	if strings.TrimSpace(readFile(filepath.Join(dir, file))) != "" {
		return
	}
	copyUp(t, filepath.Dir(dir), file)
	text := readFile(filepath.Join(filepath.Dir(dir), file))
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

func TestTheNodesOptionsHoldForEveryContainer(t *testing.T) {
	t.Parallel()
	cgroup := ownCgroup(t, "shims")
	d := nodeDaemon(t, fmt.Sprintf("ShimCgroup = %q\nExecTreeKill = true\nIoUid = 1234\nIoGid = 1235\n", cgroup))
	b := startBox(t, boxSpec{daemon: d})
	paths, err := ktest.CgroupPaths(b.shimPID)
	if err != nil {
		t.Fatal(err)
	}
	for controller, path := range paths {
		if path != cgroup {
			t.Errorf("%s: the shim is in %s, want %s", controller, path, cgroup)
		}
	}
	if out := b.ok("stat", "-L", "-c", "%u:%g", "/proc/self/fd/1"); strings.TrimSpace(out) != "1234:1235" {
		t.Errorf("owner of the output: %s", out)
	}
	killsTree(t, b, true)
	b.stop()
}

func TestAnUnknownKeyOfTheNodeStopsTheStart(t *testing.T) {
	t.Parallel()
	d := nodeDaemon(t, "NoSuchKey = 1\n")
	b := newBox(t, boxSpec{daemon: d})
	wantError(t, b.tryCreate(), nil, "NoSuchKey: unknown key", "config.toml")
}

// killsTree starts an exec with a child and kills it.
func killsTree(t *testing.T, b *box, tree bool) {
	t.Helper()
	alive := func() []ktest.Proc { // nobody may wait for the dead
		return slices.DeleteFunc(ktest.InCgroup(b.d.Cgroup(b.id)), func(p ktest.Proc) bool { return p.State == 'Z' })
	}
	before := len(alive())
	p := b.startExec(execSpec{args: []string{"sh", "-c", "sleep 1000; true"}})
	count := func(n int) {
		t.Helper()
		ktest.Eventually(t, prompt, "the processes of the container", func() error {
			if in := alive(); len(in) != n {
				return fmt.Errorf("%d, want %d: %v", len(in), n, in)
			}
			return nil
		})
	}
	count(before + 2)
	if err := p.p.Kill(b.ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if tree {
		// Nobody holds the output any more: it ends before the delete.
		if code := p.finish().code; code != 137 {
			t.Errorf("exit code %d", code)
		}
		count(before)
		return
	}
	if code := p.wait(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	count(before + 1)
}

// kubernetes/kubernetes#124226, containerd/containerd#4594
func TestAKilledExecTakesItsTreeAlongWhereTheContainerSaysSo(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it kills the first process of an exec only")
	b := startBox(t, boxSpec{spec: []oci.SpecOpts{oci.WithAnnotations(map[string]string{"io.ibex.exec-tree-kill": "true"})}})
	killsTree(t, b, true)
	killsTree(t, b, true)
	b.stop()
}

func TestAKilledExecTakesItsTreeAlongByOption(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it kills the first process of an exec only")
	b := startBox(t, boxSpec{opts: []containerd.NewContainerOpts{runtimeOptions("ExecTreeKill = true")}})
	killsTree(t, b, true)
	b.stop()
}

func TestAKilledExecLeavesItsTreeByDefault(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	killsTree(t, b, false)
	b.stop()
}
