package container_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// bundle is a container to be, in a directory of the test.
type bundle struct {
	t    testing.TB
	id   string
	dir  string
	spec *specs.Spec
	exit chan *container.Process
	warn func(error)

	layers []container.RootfsMount // none: the root is the directory rootfs
}

var caps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_NET_BIND_SERVICE"}

// newBundle makes a busybox root file system and a spec like containerd's.
func newBundle(t testing.TB, args ...string) *bundle {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox (package busybox-static)")
	}
	b := &bundle{t: t, id: "ibex-test-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-", "=", "-", ",", "").Replace(t.Name())), dir: t.TempDir(), exit: make(chan *container.Process, 100)}
	if len(b.id) > 100 {
		b.id = b.id[:100]
	}
	if err := os.Chmod(b.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(b.dir, "rootfs")
	for _, d := range []string{"bin", "etc", "proc", "dev", "sys", "tmp", "run"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"sh", "cat", "true", "false", "sleep", "echo", "id", "ls", "mount", "stat", "touch", "hostname", "readlink", "env", "kill", "tty", "stty", "wc", "grep", "ionice", "cut", "uname"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", a)); err != nil {
			t.Fatal(err)
		}
	}
	b.spec = defaultSpec(b.id, args)
	return b
}

func defaultSpec(id string, args []string) *specs.Spec {
	return &specs.Spec{
		Version: "1.2.0",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args: args, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Hostname: "ibex-test",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/ibex-test/" + id,
			Resources:   &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
				{Type: specs.CgroupNamespace},
			},
			MaskedPaths:   []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// config writes config.json.
func (b *bundle) config() {
	b.t.Helper()
	data, err := json.Marshal(b.spec)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// create creates the container and removes it at the end of the test.
func (b *bundle) create(io container.Stdio) (*container.Container, error) {
	b.t.Helper()
	b.config()
	c, err := container.Create(context.Background(), container.CreateOptions{
		ID: b.id, Bundle: b.dir, Terminal: b.spec.Process.Terminal, Stdio: io, Rootfs: b.layers,
		OnExit: func(p *container.Process) { b.exit <- p }, OnWarning: b.warn,
	})
	if err != nil {
		return nil, err
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.Kill(ctx, unix.SIGKILL)
		select {
		case <-c.Init().Done():
		case <-ctx.Done():
			b.t.Errorf("container did not end")
		}
		if err := c.Delete(ctx); err != nil {
			b.t.Error(err)
		}
	})
	return c, nil
}

// run runs the container to its end and returns its output and exit code.
func (b *bundle) run() (string, uint32) {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := b.create(container.Stdio{Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		b.t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	<-c.Init().Done()
	return string(out), c.Init().ExitStatus().Code
}

func TestAContainerRuns(t *testing.T) {
	b := newBundle(t, "sh", "-c", "echo pid $$; hostname; cat /proc/mounts; ls -l /dev; ls /sys/fs/cgroup; id; exit 7")
	out, code := b.run()
	t.Log(out)
	if code != 7 || !strings.HasPrefix(out, "pid 1\nibex-test\n") {
		t.Errorf("code %d, output %q", code, out)
	}
}
