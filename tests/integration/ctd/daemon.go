package ctd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// Daemon is a private containerd. Its containerd namespace is the name of the
// scratch directory, so that the cgroups of its containers are named by it.
type Daemon struct {
	Dir       string // everything of this daemon
	Namespace string
	Client    *containerd.Client

	env []string
	cmd *exec.Cmd
	out *os.File
}

// Options say how to start a daemon.
type Options struct {
	Scratch *ktest.Scratch
	Name    string // of the directory below the scratch directory; at most 6 letters
	Bin     string // directory with containerd and the shims; first in PATH
	Env     []string
	Debug   bool
}

// Start starts a daemon and waits until it answers.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{Dir: filepath.Join(o.Scratch.Dir, o.Name), Namespace: o.Scratch.Name()}
	// Others may pass, so that a container in a user namespace reaches its root.
	if err := os.Mkdir(d.Dir, 0o711); err != nil {
		return nil, err
	}
	// As /run is. The clean-up of the scratch directory unmounts it.
	if err := os.Mkdir(d.path("state"), 0o711); err != nil {
		return nil, err
	}
	if err := unix.Mount("ibex-state", d.path("state"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=711"); err != nil {
		return nil, fmt.Errorf("mount a tmpfs for containerd's state: %w", err)
	}
	level := "info"
	if o.Debug {
		level = "debug"
	}
	config := fmt.Sprintf(configText, d.Dir, level)
	if err := os.WriteFile(d.path("config.toml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	d.out = out
	d.env = append(os.Environ(), o.Scratch.Env(), "PATH="+o.Bin+":"+os.Getenv("PATH"))
	d.env = append(d.env, o.Env...)
	if err := d.Restart(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// configText has two arguments: the directory and the log level. What no test
// uses is off, because it costs start-up time. Without no_sync every create
// waits for the disk, which measures the disk.
const configText = `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = [
  "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri",
  "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.differ.v1.erofs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "%[1]s/c.sock"
[ttrpc]
  address = "%[1]s/c.sock.ttrpc"
[debug]
  level = "%[2]s"
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "%[1]s/s"
[plugins."io.containerd.metadata.v1.bolt"]
  no_sync = true
`

func (d *Daemon) path(name string) string { return filepath.Join(d.Dir, name) }

// PID of the daemon, 0 while it is stopped.
func (d *Daemon) PID() int {
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Restart stops the daemon if it runs, and starts it again.
func (d *Daemon) Restart(ctx context.Context) error {
	d.Stop()
	cmd := exec.Command("containerd", "-c", d.path("config.toml"))
	for _, e := range d.env { // the last PATH counts
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok {
			if first, _, _ := strings.Cut(dirs, ":"); first != "" {
				cmd.Path, cmd.Err = filepath.Join(first, "containerd"), nil
			}
		}
	}
	cmd.Env = d.env
	cmd.Stdout, cmd.Stderr = d.out, d.out
	// A group of its own: an interrupt at the terminal is for the tests, which
	// stop the daemon in order. Should they be killed, it ends as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	d.cmd = cmd
	if err := d.connect(ctx); err != nil {
		d.Stop()
		return fmt.Errorf("containerd does not answer: %w\n%s", err, d.Log())
	}
	return nil
}

func (d *Daemon) connect(ctx context.Context) error {
	return ktest.Poll(30*time.Second, func() error {
		if p, err := ktest.ReadProc(d.cmd.Process.Pid); err != nil || p.State == 'Z' {
			return errors.New("it ended")
		}
		c, err := containerd.New(d.path("c.sock"),
			containerd.WithDefaultNamespace(d.Namespace), containerd.WithTimeout(5*time.Second))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := c.Version(ctx); err != nil {
			c.Close()
			return err
		}
		d.Client = c
		return nil
	})
}

// Stop ends the daemon as an operator does. Shims and containers stay.
func (d *Daemon) Stop() { d.end(syscall.SIGTERM) }

// Kill ends the daemon at once.
func (d *Daemon) Kill() { d.end(syscall.SIGKILL) }

func (d *Daemon) end(sig syscall.Signal) {
	if d.Client != nil {
		d.Client.Close()
		d.Client = nil
	}
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	late := time.AfterFunc(15*time.Second, func() { _ = d.cmd.Process.Kill() })
	_ = d.cmd.Wait()
	late.Stop()
	d.cmd = nil
}

// Log returns the daemon's log, which holds the shims' as well.
func (d *Daemon) Log() string {
	text, _ := os.ReadFile(d.path("log"))
	return string(text)
}

// Context carries the daemon's namespace.
func (d *Daemon) Context(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, d.Namespace)
}

// Import loads an image written by WriteImage and unpacks it.
func (d *Daemon) Import(ctx context.Context, tarFile string) error {
	f, err := os.Open(tarFile)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx = d.Context(ctx)
	if _, err := d.Client.Import(ctx, f); err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	img, err := d.Client.GetImage(ctx, ImageName)
	if err != nil {
		return fmt.Errorf("import image: %w", err)
	}
	if err := img.Unpack(ctx, Snapshotter); err != nil {
		return fmt.Errorf("unpack image: %w", err)
	}
	return nil
}

// Snapshotter is the one that tests use.
const Snapshotter = "overlayfs"

// Bundle is the directory of a task, where config.json is.
func (d *Daemon) Bundle(id string) string {
	return d.path("state/io.containerd.runtime.v2.task/" + d.Namespace + "/" + id)
}

// Work is the other directory of a task, on disk.
func (d *Daemon) Work(id string) string {
	return d.path("root/io.containerd.runtime.v2.task/" + d.Namespace + "/" + id)
}

// SocketDir is where shims have their sockets.
func (d *Daemon) SocketDir() string { return d.path("s") }

// Cgroup is the path of a container's cgroup, as the default spec sets it.
func (d *Daemon) Cgroup(id string) string { return "/" + d.Namespace + "/" + id }
