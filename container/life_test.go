package container_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/container"
)

// exec runs args in c and returns the output and exit code.
func (b *bundle) exec(c *container.Container, id string, args ...string) (string, uint32, error) {
	b.t.Helper()
	spec := *b.spec.Process
	spec.Args, spec.Terminal = args, false
	p, err := c.Exec(id, &spec, false)
	if err != nil {
		return "", 0, err
	}
	defer p.Delete()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	err = p.Start(context.Background(), container.Stdio{Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		return "", 0, err
	}
	out, _ := io.ReadAll(r)
	<-p.Done()
	return string(out), p.ExitStatus().Code, nil
}

func (b *bundle) start() *container.Container {
	b.t.Helper()
	c, err := b.create(container.Stdio{})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func TestAnExecRunsBesideTheFirstProcess(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	out, code, err := b.exec(c, "e1", "sh", "-c", "hostname; cat /proc/1/cmdline; readlink /proc/self/ns/pid; readlink /proc/1/ns/pid; exit 3")
	if err != nil || code != 3 || !strings.HasPrefix(out, "ibex-test\nsleep\x001000\x00") {
		t.Errorf("%q %d %v", out, code, err)
	}
	if ns := strings.Fields(out[strings.LastIndex(out, "\x00")+1:]); len(ns) != 2 || ns[0] != ns[1] {
		t.Errorf("PID namespaces: %v", ns)
	}
	if got := <-b.exit; got.ID() != "e1" {
		t.Errorf("exit of %q", got.ID())
	}
}

func TestAMissingProgramEndsBeforeAnythingWasMade(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	for _, tt := range []struct{ cmd, want string }{
		{"nope", "executable file not found in $PATH"}, {"/nope", "no such file or directory"}, {"/etc", "permission denied"},
	} {
		_, _, err := b.exec(c, "e", tt.cmd)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.cmd) {
			t.Errorf("%s: %v", tt.cmd, err)
		}
	}
	// The program is looked up before there is a cgroup to be wrong about.
	b1 := newBundle(t, "nope")
	b1.id += "-1"
	b1.spec.Linux.CgroupsPath = "ibex-test/no/such\nname"
	if _, err := b1.create(container.Stdio{}); err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Errorf("before the cgroup: %v", err)
	}
	b2 := newBundle(t, "nope")
	b2.id, b2.spec.Linux.CgroupsPath = b.id+"-2", "/ibex-test/second"
	_, err := b2.create(container.Stdio{})
	if err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Errorf("first process: %v", err)
	}
	b2.nothingLeft()
}

// nothingLeft checks that a failed create left no cgroup, mount or record.
func (b *bundle) nothingLeft() {
	b.t.Helper()
	for _, h := range []string{"memory", "pids", "cpu", "unified", ""} {
		if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", h, b.spec.Linux.CgroupsPath)); err == nil {
			b.t.Errorf("cgroup left in %q", h)
		}
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), b.dir) {
		b.t.Errorf("mount left below %s", b.dir)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ibex.json")); err == nil {
		b.t.Error("record left")
	}
}

func TestAFailingCreateLeavesNothing(t *testing.T) {
	period := uint64(1)
	for name, breakIt := range map[string]func(s *specs.Spec){
		"no args": func(s *specs.Spec) { s.Process.Args = nil },
		"bad mount source": func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/x", Type: "bind", Source: "/nope"})
		},
		"bad mount option":    func(s *specs.Spec) { s.Mounts[1].Options = []string{"size=nonsense"} },
		"unknown file system": func(s *specs.Spec) { s.Mounts[1].Type = "nofs" },
		"bad CPU period":      func(s *specs.Spec) { s.Linux.Resources.CPU = &specs.LinuxCPU{Period: &period} },
		"bad namespace path":  func(s *specs.Spec) { s.Linux.Namespaces[4].Path = "/etc/passwd" },
		"failing hook":        func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/false"}}} },
		"missing hook":        func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateContainer: []specs.Hook{{Path: "/nope"}}} },
		"relative hook":       func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "true"}}} },
		"no mount namespace":  func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:3] },
		"unknown capability":  func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_X"} },
		"no cwd":              func(s *specs.Spec) { s.Process.Cwd = "relative" },
		"host sysctl":         func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"kernel.core_pattern": "|/x"} },
		"mount over /proc": func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/proc/self", Type: "tmpfs"})
		},
		"a root that is a file": func(s *specs.Spec) { s.Root.Path = "/etc/passwd" },
		"cgroup path escapes":   func(s *specs.Spec) { s.Linux.CgroupsPath = "/a/../../b" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, "true")
			breakIt(b.spec)
			c, err := b.create(container.Stdio{})
			if err == nil {
				t.Fatalf("created %v", c.ID())
			}
			t.Log(err)
			b.nothingLeft()
		})
	}
}

func TestATerminalIsTheContainersOwn(t *testing.T) {
	b := newBundle(t, "sh", "-c", "tty; stty size; ls -l /dev/console; cat; exit 5")
	b.spec.Process.Terminal = true
	b.spec.Process.ConsoleSize = &specs.Box{Height: 33, Width: 77}
	c, err := b.create(container.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		t.Fatal(err)
	}
	m := c.Init().Console()
	if _, err := m.Write([]byte("typed\n\x04")); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(m) // ends with EIO when the last replica closes
	<-c.Init().Done()
	text := strings.ReplaceAll(string(out), "\r", "")
	for _, want := range []string{"/dev/pts/0\n", "33 77\n", "136,   0", "typed\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if st := c.Init().ExitStatus(); st.Code != 5 {
		t.Errorf("code %d", st.Code)
	}
}

func TestExitsOfExecsComeBeforeTheFirstProcess(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared=", shared), func(t *testing.T) {
			b := newBundle(t, "sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.02; done")
			if shared {
				b.spec.Linux.Namespaces = b.spec.Linux.Namespaces[1:] // the host's PIDs
			}
			c := b.start()
			for i := range 5 {
				spec := *b.spec.Process
				spec.Args = []string{"sleep", "1000"}
				p, err := c.Exec(fmt.Sprint("e", i), &spec, false)
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Start(context.Background(), container.Stdio{}); err != nil {
					t.Fatal(err)
				}
			}
			b.write("tmp/end", "")
			for i := range 6 {
				select {
				case p := <-b.exit:
					if (p.ID() == "") != (i == 5) {
						t.Fatalf("exit %d is of %q", i, p.ID())
					}
					if p.ID() != "" && p.ExitStatus().Code != 137 {
						t.Errorf("%s: code %d", p.ID(), p.ExitStatus().Code)
					}
				case <-time.After(10 * time.Second):
					t.Fatal("an exit is missing")
				}
			}
			if _, err := c.Exec("late", b.spec.Process, false); !errors.Is(err, container.ErrState) {
				t.Errorf("exec after the end: %v", err)
			}
		})
	}
}

func TestPauseStopsAndKillEndsAPausedContainer(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	ctx := context.Background()
	if err := c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if s := c.Init().Status(); s != container.Paused {
		t.Errorf("status %v", s)
	}
	if _, _, err := b.exec(c, "e", "true"); !errors.Is(err, container.ErrState) {
		t.Errorf("exec in a paused container: %v", err)
	}
	if err := c.Init().Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Done()
	if st := c.Init().ExitStatus(); st.Code != 137 {
		t.Errorf("code %d", st.Code)
	}
	if err := c.Init().Kill(unix.SIGTERM); !errors.Is(err, container.ErrNotFound) || !strings.Contains(err.Error(), "process already finished") {
		t.Errorf("kill after the end: %v", err)
	}
	var s cgroups.Stats
	if err := c.Stats(&s); err != nil {
		t.Errorf("stats after the end: %v", err)
	}
}

func TestAnExecFitsIntoAFullPIDsLimit(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	one := int64(1)
	b.spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: &one}
	c := b.start()
	out, code, err := b.exec(c, "e", "echo", "hi")
	if err != nil || code != 0 || out != "hi\n" {
		t.Errorf("%q %d %v", out, code, err)
	}
}

func TestAContainerJoinsTheNamespacesOfAnother(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	first := b.start()
	b2 := newBundle(t, "sh", "-c", "echo $$ > /dev/shm/pid; cat /proc/1/cmdline; hostname; ls /proc | grep -c '^[0-9]'")
	b2.id += "-2"
	b2.spec.Hostname = ""
	b2.spec.Linux.CgroupsPath += "-2"
	for i, n := range map[int]string{0: "pid", 1: "ipc", 2: "uts", 4: "net"} {
		b2.spec.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/%s", first.Init().PID(), n)
	}
	out, code := b2.run()
	if code != 0 || !strings.HasPrefix(out, "sleep\x001000\x00ibex-test\n") {
		t.Errorf("%d %q", code, out)
	}
	if s := first.Init().Status(); s != container.Running {
		t.Errorf("the other container is %v", s)
	}
}

func TestCleanupRemovesWhatALostShimLeft(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	pid, st, err := container.Cleanup(context.Background(), "", b.dir, b.id)
	if err != nil || pid != c.Init().PID() || st.Code != 137 {
		t.Errorf("%d %v %v", pid, st, err)
	}
	<-c.Init().Done()
	// This process still has the container, and noted its exit after Cleanup.
	if err := os.Remove(filepath.Join(b.dir, "ibex.json")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	b.nothingLeft()
	if _, _, err := container.Cleanup(context.Background(), "", b.dir, b.id); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestAnExecRunsOnTheCPUsAskedFor(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	b.spec.Process.ExecCPUAffinity = &specs.CPUAffinity{Initial: "0", Final: "1"}
	out, code, err := b.exec(c, "e", "grep", "Cpus_allowed_list", "/proc/self/status")
	if err != nil || code != 0 || out != "Cpus_allowed_list:\t1\n" {
		t.Errorf("%q %d %v", out, code, err)
	}
	b.spec.Process.ExecCPUAffinity.Final = "3-1"
	if _, _, err := b.exec(c, "e", "true"); err == nil || !strings.Contains(err.Error(), "process.execCPUAffinity.final") {
		t.Errorf("got %v", err)
	}
}

// On hosts run by systemd "/" is a shared mount, and a clone of it is its peer.
func TestNothingIsMountedOnAHostWhoseMountsAreShared(t *testing.T) {
	b := newBundle(t, "sh", "-c", "cat /plain/etc/made && grep -c . /proc/mounts")
	if err := unix.Mount(b.dir, b.dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(b.dir, unix.MNT_DETACH) })
	if err := unix.Mount("", b.dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	b.write("etc/made", "made\n")
	b.spec.Mounts = append(b.spec.Mounts,
		specs.Mount{Destination: "/plain", Type: "bind", Source: filepath.Join(b.dir, "rootfs"), Options: []string{"rbind"}},
		specs.Mount{Destination: "/plain/tmp", Type: "tmpfs", Source: "tmpfs"})
	before, _ := os.ReadFile("/proc/self/mountinfo")
	out, code := b.run()
	if code != 0 || !strings.HasPrefix(out, "made\n") {
		t.Errorf("%d %q", code, out)
	}
	after, _ := os.ReadFile("/proc/self/mountinfo")
	if a, z := strings.Count(string(before), b.dir), strings.Count(string(after), b.dir); a != z {
		t.Errorf("%d mounts below the bundle before, %d after:\n%s", a, z, after)
	}
}

func TestDeleteEndsAContainerThatWasNeverStarted(t *testing.T) {
	b := newBundle(t, "true")
	c, err := b.create(container.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
	if p := <-b.exit; p.ID() != "" || p.ExitStatus().Code != 137 {
		t.Errorf("exit of %q with %d", p.ID(), p.ExitStatus().Code)
	}
}
