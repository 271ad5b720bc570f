package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

func readLink(path string) string {
	l, _ := os.Readlink(path)
	return l
}

// mountTable is what a process of the container sees, by mount point; the last
// one counts.
func (b *box) mountTable() map[string]ktest.Mount {
	b.t.Helper()
	table := map[string]ktest.Mount{}
	for _, m := range ktest.ParseMounts(b.ok("cat", "/proc/self/mountinfo")) {
		table[m.Point] = m
	}
	return table
}

// hasOptions tells which of the options are missing; "!x" must not be there.
func hasOptions(m ktest.Mount, options string) (wrong []string) {
	all := append(slices.Clone(m.Options), strings.Split(m.SuperOptions, ",")...)
	for _, o := range strings.Fields(options) {
		if no, ok := strings.CutPrefix(o, "!"); ok {
			if slices.Contains(m.Options, no) {
				wrong = append(wrong, o)
			}
		} else if !slices.Contains(all, o) {
			wrong = append(wrong, o)
		}
	}
	return wrong
}

func wantMount(t *testing.T, table map[string]ktest.Mount, point, fstype, options string) {
	t.Helper()
	m, ok := table[point]
	if !ok {
		t.Errorf("no mount on %s", point)
		return
	}
	if m.Type != fstype {
		t.Errorf("%s is a %s, want %s", point, m.Type, fstype)
	}
	if wrong := hasOptions(m, options); len(wrong) > 0 {
		t.Errorf("%s has options %v and %s: wrong are %q", point, m.Options, m.SuperOptions, wrong)
	}
}

func TestTheDefaultMounts(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	table := b.mountTable()
	wantMount(t, table, "/", "overlay", "rw")
	wantMount(t, table, "/proc", "proc", "rw nosuid nodev noexec")
	wantMount(t, table, "/dev", "tmpfs", "rw nosuid mode=755 size=65536k !nodev")
	wantMount(t, table, "/dev/pts", "devpts", "rw nosuid noexec gid=5 mode=620 ptmxmode=666")
	wantMount(t, table, "/dev/shm", "tmpfs", "rw nosuid nodev noexec size=65536k")
	wantMount(t, table, "/dev/mqueue", "mqueue", "rw nosuid nodev noexec")
	wantMount(t, table, "/sys", "sysfs", "ro nosuid nodev noexec")
	wantMount(t, table, "/run", "tmpfs", "rw nosuid mode=755 size=65536k")
	for point, m := range table {
		for _, p := range m.Propagation {
			if strings.HasPrefix(p, "shared:") {
				t.Errorf("%s is shared", point)
			}
		}
	}
	b.stop()
}

func TestMaskedAndReadOnlyPaths(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	table := b.mountTable()
	for _, p := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"} {
		if _, err := os.Stat(p); err == nil {
			wantMount(t, table, p, "proc", "ro nosuid nodev noexec")
		}
	}
	for _, p := range []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware", "/proc/interrupts"} {
		st, err := os.Stat(p)
		if err != nil {
			continue
		}
		m, ok := table[p]
		switch {
		case !ok:
			t.Errorf("%s is not masked", p)
		case st.IsDir():
			wantMount(t, table, p, "tmpfs", "ro")
			if out := b.ok("ls", "-A", p); out != "" {
				t.Errorf("%s holds %q", p, out)
			}
		default:
			if m.Root != "/null" {
				t.Errorf("%s is %s of a %s, want the null device", p, m.Root, m.Type)
			}
			if out := b.ok("stat", "-c", "%t:%T", p); out != "1:3\n" {
				t.Errorf("%s is device %q", p, out)
			}
		}
	}
	// What is not there is no error, and a file of the image can be hidden.
	b2 := startBox(t, boxSpec{spec: edit(func(s *specs.Spec) {
		s.Linux.MaskedPaths = []string{"/etc/passwd", "/odd", "/no/such/path"}
		s.Linux.ReadonlyPaths = []string{"/home", "/no/such/path"}
	})})
	if out := b2.ok("sh", "-c", "cat /etc/passwd; ls -A /odd"); out != "" {
		t.Errorf("masked: %q", out)
	}
	if r := b2.exec("touch", "/home/x"); r.code == 0 || !strings.Contains(r.err, "Read-only") {
		t.Errorf("write to a read-only path: %v", r)
	}
}

func TestWhatAContainerMayNotDo(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	out := b.ok("probe", "try")
	needs := map[string]string{"list-firmware": "/sys/firmware", "read-kcore": "/proc/kcore", "write-sysrq": "/proc/sysrq-trigger"}
	for name, want := range map[string]string{
		"mount": "operation not permitted", "write-proc-sys": "read-only file system", "write-sysrq": "read-only file system",
		"write-root": "ok", "write-sys": "read-only file system", "read-kcore": "EOF", "list-firmware": "empty",
		"open-kmsg": "operation not permitted", "sethostname": "operation not permitted",
		"unshare-mount": "operation not permitted", "setuid-root": "ok",
	} {
		if _, err := os.Stat(needs[name]); needs[name] != "" && err != nil {
			continue
		}
		if !strings.Contains(out, name+" "+want+"\n") {
			t.Errorf("want %s %s in\n%s", name, want, out)
		}
	}
}

func TestTheRootMayBeReadOnly(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: edit(func(s *specs.Spec) { s.Root.Readonly = true })})
	wantMount(t, b.mountTable(), "/", "overlay", "ro")
	if r := b.exec("touch", "/x"); r.code == 0 || !strings.Contains(r.err, "Read-only") {
		t.Errorf("write to the root: %v", r)
	}
	b.ok("touch", "/run/x", "/dev/shm/x")
}

func TestDevHasTheDefaultNodesAndLinks(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	for path, want := range map[string]string{
		"null": "1:3", "zero": "1:5", "full": "1:7", "random": "1:8", "urandom": "1:9", "tty": "5:0",
	} {
		if out := b.ok("stat", "-c", "%F %t:%T %a %u:%g", "/dev/"+path); out != "character special file "+want+" 666 0:0\n" {
			t.Errorf("/dev/%s: %q", path, out)
		}
	}
	for path, want := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if out := b.ok("readlink", "/dev/"+path); out != want+"\n" {
			t.Errorf("/dev/%s leads to %q", path, out)
		}
	}
	names := strings.Fields(b.ok("ls", "/dev"))
	slices.Sort(names)
	known := "core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero"
	for _, n := range names {
		if !slices.Contains(strings.Fields(known), n) {
			t.Errorf("/dev/%s is there", n)
		}
	}
	if out := b.ok("stat", "-c", "%a", "/dev/shm"); out != "1777\n" {
		t.Errorf("/dev/shm has mode %s", out)
	}
}

func TestATerminalHasAConsole(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{tty: true})
	if out := b.ok("stat", "-c", "%F", "/dev/console"); out != "character special file\n" {
		t.Errorf("/dev/console is a %q", out)
	}
	wantMount(t, b.mountTable(), "/dev/console", "devpts", "")
	r := b.execWith(execSpec{tty: true, args: []string{"probe", "state"}})
	s := parseState(t, strings.ReplaceAll(r.out, "\r", ""))
	want(t, "terminal", s.StdinIsATerminal, true)
	want(t, "controlling terminal", s.ControllingTTY, true)
}

func TestADeviceOfTheSpecIsMade(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: edit(func(s *specs.Spec) {
		s.Linux.Devices = append(s.Linux.Devices,
			specs.LinuxDevice{Path: "/dev/sub/kmsg", Type: "c", Major: 1, Minor: 11, FileMode: ptr(os.FileMode(0o640)), UID: ptr[uint32](1000), GID: ptr[uint32](2000)},
			specs.LinuxDevice{Path: "/dev/pipe", Type: "p", FileMode: ptr(os.FileMode(0o600))})
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: ptr[int64](1), Minor: ptr[int64](11), Access: "r"})
	})})
	want(t, "kmsg", b.ok("stat", "-c", "%F %t:%T %a %u:%g", "/dev/sub/kmsg"), "character special file 1:b 640 1000:2000\n")
	want(t, "pipe", b.ok("stat", "-c", "%F %a", "/dev/pipe"), "fifo 600\n")
}

// hostDir makes a directory on the host from a description of a tree.
func hostDir(t *testing.T, tree string) string {
	t.Helper()
	dir, err := os.MkdirTemp(scratch.Dir, "host-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ktest.Tree(t, dir, tree)
	t.Cleanup(func() {
		if len(ktest.MountsBelow(dir)) > 0 {
			t.Errorf("mounts below %s: %v", dir, ktest.MountsBelow(dir))
			_ = ktest.UnmountBelow(dir)
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

func TestBindMountsWithTheirOptions(t *testing.T) {
	t.Parallel()
	dir := hostDir(t, "f = text\\n\nsub/inner = inner\\n\nmnt/")
	below := filepath.Join(dir, "mnt")
	if err := unix.Mount("tmpfs", below, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(below, unix.MNT_DETACH)
	bind := func(dst, src string, options ...string) specs.Mount {
		return specs.Mount{Destination: dst, Type: "bind", Source: src, Options: options}
	}
	b := startBox(t, boxSpec{spec: withMounts(
		bind("/rw", dir, "rbind"),
		bind("/ro", dir, "rbind", "ro"),
		bind("/rro", dir, "rbind", "rro"),
		bind("/flat", dir, "bind"),
		bind("/strict", dir, "bind", "nosuid", "nodev", "noexec", "noatime"),
		bind("/deep/file", dir+"/f", "bind", "ro"),
		bind("/etc/passwd", dir+"/f", "bind"),
		bind("/tmpfs", dir, "rbind", "rnoexec"),
	)})
	table := b.mountTable()
	wantMount(t, table, "/rw/mnt", "tmpfs", "rw")
	wantMount(t, table, "/ro/mnt", "tmpfs", "rw")
	wantMount(t, table, "/rro/mnt", "tmpfs", "ro")
	wantMount(t, table, "/tmpfs/mnt", "tmpfs", "noexec")
	if _, ok := table["/flat/mnt"]; ok {
		t.Error("a mount below a bind mount came along")
	}
	if wrong := hasOptions(table["/strict"], "nosuid nodev noexec noatime rw"); len(wrong) > 0 {
		t.Errorf("/strict has %v: wrong are %v", table["/strict"].Options, wrong)
	}
	want(t, "files", b.ok("cat", "/rw/f", "/ro/sub/inner", "/deep/file", "/etc/passwd"), "text\ninner\ntext\ntext\n")
	b.ok("touch", "/rw/made")
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/ro/x", "/rro/x", "/rro/mnt/x", "/deep/file"} {
		if r := b.exec("sh", "-c", "echo > "+path); r.code == 0 {
			t.Errorf("%s could be written", path)
		}
	}
	b.stop()
}

func TestPropagationOfMounts(t *testing.T) {
	t.Parallel()
	dir := hostDir(t, "src/later/")
	src := filepath.Join(dir, "src")
	if err := unix.Mount(src, src, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(src, unix.MNT_DETACH)
	if err := unix.Mount("", src, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	bind := func(dst, propagation string) specs.Mount {
		return specs.Mount{Destination: dst, Type: "bind", Source: src, Options: []string{"rbind", propagation}}
	}
	b := startBox(t, boxSpec{spec: append(withMounts(bind("/private", "rprivate"), bind("/slave", "rslave"), bind("/shared", "rshared")),
		edit(func(s *specs.Spec) { s.Linux.RootfsPropagation = "shared" })...)})
	table := b.mountTable()
	for point, kind := range map[string]string{"/private": "", "/slave": "master:", "/shared": "shared:"} {
		have := strings.Join(table[point].Propagation, " ")
		if (kind == "") != (have == "") || !strings.Contains(have, kind) {
			t.Errorf("%s is %q, want %q", point, have, kind)
		}
	}
	later := filepath.Join(src, "later")
	if err := unix.Mount("tmpfs", later, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	table = b.mountTable()
	for point, comes := range map[string]bool{"/private/later": false, "/slave/later": true, "/shared/later": true} {
		if _, ok := table[point]; ok != comes {
			t.Errorf("a later mount is at %s: %v, want %v", point, ok, comes)
		}
	}
	if err := unix.Unmount(later, 0); err != nil {
		t.Fatal(err)
	}
	b.stop()
}

func TestTmpfsOptions(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: withMounts(
		specs.Mount{Destination: "/t1", Type: "tmpfs", Source: "tmpfs", Options: []string{"size=1m", "mode=1711", "uid=1000", "gid=2000", "nosuid", "noexec", "nodev", "ro"}},
		specs.Mount{Destination: "/t3/deep/er", Type: "tmpfs", Source: "tmpfs", Options: []string{"relatime", "nr_inodes=100"}},
	)})
	table := b.mountTable()
	wantMount(t, table, "/t1", "tmpfs", "ro nosuid noexec nodev size=1024k mode=1711 uid=1000 gid=2000")
	wantMount(t, table, "/t3/deep/er", "tmpfs", "rw relatime nr_inodes=100")
	want(t, "mode", b.ok("stat", "-c", "%a %u:%g", "/t1"), "1711 1000:2000\n")
	b.stop()
}

func TestATmpfsMayStartWithWhatItHides(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{spec: withMounts(
		specs.Mount{Destination: "/odd", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}},
	)})
	if err := b.tryCreate(); err != nil {
		wantError(t, err, nil, "tmpcopyup")
		t.Skip("tmpcopyup is refused, see docs/conformance.md")
	}
	b.start()
	wantMount(t, b.mountTable(), "/odd", "tmpfs", "rw")
	want(t, "copied files", b.ok("cat", "/odd/script"), "#!/bin/sh\necho script\n")
	b.stop()
}

func TestTheCgroupMount(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"ro", "rw"} {
		for _, private := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, namespace %v", option, private), func(t *testing.T) {
				t.Parallel()
				spec := withMounts(specs.Mount{
					Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
					Options: []string{"nosuid", "noexec", "nodev", "relatime", option},
				})
				if private {
					spec = append(spec, withNamespace(specs.CgroupNamespace, ""))
				}
				b := startBox(t, boxSpec{spec: spec})
				limit := "/sys/fs/cgroup/memory/memory.limit_in_bytes"
				if ktest.CgroupV2() {
					limit = "/sys/fs/cgroup/pids.max"
				}
				if out := b.ok("cat", limit); out == "" {
					t.Errorf("%s is empty", limit)
				}
				r := b.exec("mkdir", filepath.Dir(limit)+"/made")
				if (r.code == 0) != (option == "rw") {
					t.Errorf("mkdir: %v", r)
				}
				b.stop()
			})
		}
	}
}

// The image may hold links where the spec wants a mount; they are followed
// inside the root only.
func TestLinksInMountTargetsStayInside(t *testing.T) {
	t.Parallel()
	dir := hostDir(t, "f = host\\n")
	b := newBox(t, boxSpec{spec: withMounts(specs.Mount{Destination: "/odd/dangling/x", Type: "bind", Source: dir, Options: []string{"rbind"}})})
	err := b.tryCreate()
	if err == nil {
		b.start()
		if out := b.ok("cat", "/nowhere/x/f"); out != "host\n" {
			t.Errorf("got %q", out)
		}
		b.stop()
	} else if b.task != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat("/nowhere"); err == nil {
		t.Error("/nowhere was made on the host")
	}
}

// A process that enters a namespace by its shim's pid must not reach the host's
// mounts from the container.
func TestTheHostsMountsAreGone(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: []oci.SpecOpts{oci.WithHostNamespace(specs.PIDNamespace)}})
	for point, m := range b.mountTable() {
		if strings.Contains(point, scratch.Dir) || m.Type == "ext4" && point == "/" {
			t.Errorf("mount %+v", m)
		}
	}
	b.stop()
}
