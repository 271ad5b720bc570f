// Package security attacks the runtime the way that containers, images and
// neighbours did in the past, one file for each kind of attack. Each comment
// tells the story and names the vulnerabilities. docs/threat-model.md lists which
// guard each test holds.
package security

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// scratch holds everything that the run makes; spyPath is the hostile program.
var (
	scratch *ktest.Scratch
	spyPath string
	busybox string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("skipped: the attacks are on a runtime that is root")
		return 0
	}
	err := prepare()
	if scratch != nil {
		defer scratch.Remove() //nolint:errcheck // the next run tries again
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	code := m.Run()
	cgroup := "/" + scratch.Name()
	if err := ktest.RemoveCgroup(cgroup); err != nil {
		fmt.Println(err)
		code = 1
	}
	if left := ktest.MountsBelow(scratch.Dir); len(left) > 0 {
		fmt.Println("mounts left on the host:", left)
		code = 1
	}
	return code
}

func prepare() (err error) {
	if scratch, err = ktest.NewScratch("ibex-test-sec-"); err != nil {
		return err
	}
	for _, p := range []string{os.Getenv("IBEX_BUSYBOX"), "/bin/busybox", "/usr/bin/busybox", "/usr/lib/busybox/busybox"} {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			busybox = filepath.Join(scratch.Dir, "busybox")
			if err := copyFile(p, busybox); err != nil {
				return err
			}
			break
		}
	}
	if busybox == "" {
		return fmt.Errorf("no busybox; on Debian: apt-get install busybox-static")
	}
	spyPath = filepath.Join(scratch.Dir, "spy")
	return ctd.Build(scratch.Dir, "./tests/cmd/spy")
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// box is a container to be: a bundle, its root file system and its spec.
type box struct {
	t      testing.TB
	id     string
	dir    string
	root   string
	spec   *specs.Spec
	layers []container.RootfsMount
	stdio  container.Stdio
	n      int // execs so far
	gone   bool
	before func() // called before create
}

var defaultCaps = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
	"CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE",
}

var applets = []string{"sh", "cat", "true", "sleep", "echo", "ls", "stat", "id", "mkdir", "mknod", "dd", "env", "readlink", "grep", "touch"}

var boxes int

// newBox makes a box with busybox and the spy in it.
func newBox(t testing.TB, args ...string) *box {
	t.Helper()
	boxes++
	b := &box{t: t, id: fmt.Sprintf("c%d", boxes)}
	b.dir = filepath.Join(scratch.Dir, b.id)
	b.root = filepath.Join(b.dir, "rootfs")
	for _, d := range []string{"bin", "etc", "proc", "dev", "sys", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(b.root, d), 0o755))
	}
	must(t, os.Link(busybox, filepath.Join(b.root, "bin/busybox")))
	must(t, os.Link(spyPath, filepath.Join(b.root, "bin/spy")))
	for _, a := range applets {
		must(t, os.Symlink("busybox", filepath.Join(b.root, "bin", a)))
	}
	b.spec = defaultSpec(b.id, args)
	t.Cleanup(func() { os.RemoveAll(b.dir) })
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// defaultSpec is what containerd gives to a container by default.
func defaultSpec(id string, args []string) *specs.Spec {
	return &specs.Spec{
		Version: "1.2.0",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args: args, Cwd: "/", Env: []string{"PATH=/bin"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: defaultCaps, Effective: defaultCaps, Permitted: defaultCaps},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
			{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		},
		Linux: &specs.Linux{
			CgroupsPath: "/" + scratch.Name() + "/" + id,
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

func (b *box) caps(more ...string) {
	all := append(slices.Clone(defaultCaps), more...)
	b.spec.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
}

// userns gives the box a user namespace in which everything is mapped to ids that
// nobody has, and its files to them.
func (b *box) userns() {
	b.t.Helper()
	const first, size = 3_000_000, 65536
	m := []specs.LinuxIDMapping{{ContainerID: 0, HostID: first, Size: size}}
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings = m, m
	must(b.t, os.Chmod(scratch.Dir, 0o711))
	for _, d := range []string{b.dir, b.root} {
		must(b.t, os.Chmod(d, 0o755))
	}
}

func (b *box) create() (*container.Container, error) {
	b.t.Helper()
	data, err := json.Marshal(b.spec)
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600))
	if b.before != nil {
		b.before()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return container.Create(ctx, container.CreateOptions{
		ID: b.id, Bundle: b.dir, Terminal: b.spec.Process.Terminal, Stdio: b.stdio, Rootfs: b.layers,
	})
}

// remove ends a container and deletes it.
func (b *box) remove(c *container.Container) {
	b.t.Helper()
	if b.gone {
		return
	}
	b.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Kill(ctx, unix.SIGKILL); err != nil {
		b.t.Error(err)
	}
	select {
	case <-c.Init().Done():
	case <-ctx.Done():
		b.t.Error("the container did not end")
	}
	if err := c.Delete(ctx); err != nil {
		b.t.Error(err)
	}
}

// start starts the box; the end of the test removes it.
func (b *box) start() *container.Container {
	b.t.Helper()
	c, err := b.create()
	must(b.t, err)
	b.t.Cleanup(func() { b.remove(c) })
	must(b.t, c.Init().Start(context.Background(), container.Stdio{}))
	return c
}

// run runs the box to its end and returns what it says.
func (b *box) run() (out string, code uint32, err error) {
	b.t.Helper()
	r, w, err := os.Pipe()
	must(b.t, err)
	defer r.Close()
	b.stdio = container.Stdio{Stdout: w, Stderr: w}
	c, err := b.create()
	w.Close()
	if err != nil {
		return "", 0, err
	}
	defer b.remove(c)
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		return "", 0, err
	}
	data, _ := io.ReadAll(r)
	<-c.Init().Done()
	return string(data), c.Init().ExitStatus().Code, nil
}

// exec runs a program in a running box; change, if not nil, changes its spec.
func (b *box) exec(c *container.Container, change func(*specs.Process), args ...string) (out string, code uint32, err error) {
	b.t.Helper()
	spec := *b.spec.Process
	spec.Args, spec.Terminal = args, false
	if change != nil {
		change(&spec)
	}
	b.n++
	p, err := c.Exec(fmt.Sprintf("e%d", b.n), &spec, false)
	if err != nil {
		return "", 0, err
	}
	defer p.Delete() //nolint:errcheck // it has ended
	r, w, err := os.Pipe()
	must(b.t, err)
	defer r.Close()
	err = p.Start(context.Background(), container.Stdio{Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		return "", 0, err
	}
	data, _ := io.ReadAll(r)
	<-p.Done()
	return string(data), p.ExitStatus().Code, nil
}

// nothingLeft checks that a refused box left nothing on the host.
func (b *box) nothingLeft() {
	b.t.Helper()
	if left := ktest.CgroupDirs(b.spec.Linux.CgroupsPath); len(left) > 0 {
		b.t.Errorf("cgroups left: %v", left)
	}
	if left := ktest.MountsBelow(scratch.Dir); len(left) > 0 {
		b.t.Errorf("mounts left on the host: %v", left)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "ibex.json")); err == nil {
		b.t.Error("a record is left")
	}
}

// decoy is a directory of the host that no attack may change. It is compared at
// the end of the test.
func decoy(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch.Dir, "decoy-")
	must(t, err)
	ktest.Tree(t, dir, `
		d/
		d/f = kept
		pts/
		self/
		0600 secret = of the host
		null = a file of the host
		l -> secret
	`)
	before := listing(t, dir)
	t.Cleanup(func() {
		if after := listing(t, dir); after != before {
			t.Errorf("files of the host changed.\nbefore:\n%s\nafter:\n%s", before, after)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// listing is everything about a tree that an attack could change.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		sum := ""
		if e.Type().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			sum = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		fmt.Fprintf(&out, "%s mode %o ino %d dev %d owner %d:%d links %d %s\n", p, st.Mode, st.Ino, st.Rdev, st.Uid, st.Gid, st.Nlink, sum)
		return nil
	})
	must(t, err)
	return out.String()
}

// rootLayer makes dir the root, as a bind mount with flags.
func rootLayer(dir string, flags ...string) container.RootfsMount {
	return container.RootfsMount{Type: "bind", Source: dir, Options: append([]string{"rbind"}, flags...)}
}
