package container_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestTheSpecIsSeenFromInside runs small scripts in containers whose spec was
// changed, and looks for lines in their output.
func TestTheSpecIsSeenFromInside(t *testing.T) {
	umask := uint32(0o027)
	mode := os.FileMode(0o640)
	uid := uint32(7)
	for _, tt := range []struct {
		name   string
		change func(b *bundle)
		script string
		want   []string
	}{
		{
			"read-only root", func(b *bundle) { b.spec.Root.Readonly = true },
			"touch /x; touch /run/y && echo run",
			[]string{"touch: /x: Read-only file system", "run"},
		},
		{
			"masked and read-only paths", func(*bundle) {},
			"cat /proc/keys | wc -c; ls /sys/firmware | wc -l; echo 1 > /proc/sys/kernel/domainname; stat -c %t:%T /proc/timer_list",
			[]string{"0", "0", "Read-only file system", "1:3"},
		},
		{"user, groups, umask", func(b *bundle) {
			b.spec.Process.User = specs.User{UID: 1000, GID: 1001, AdditionalGids: []uint32{5, 6}, Umask: &umask}
		}, "id; umask; echo x > /dev/stdout", []string{"uid=1000 gid=1001 groups=5,6", "0027", "x"}},
		{"cwd is made", func(b *bundle) { b.spec.Process.Cwd = "/a/b/c" }, "readlink /proc/self/cwd", []string{"/a/b/c"}},
		{"home from passwd", func(b *bundle) {
			b.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nu:x:9:9::/home/u:/bin/sh\n")
			b.spec.Process.User.UID = 9
		}, "echo $HOME", []string{"/home/u"}},
		{"devices", func(b *bundle) {
			b.spec.Linux.Devices = []specs.LinuxDevice{
				{Path: "/dev/net/tun", Type: "c", Major: 10, Minor: 200, FileMode: &mode, UID: &uid},
				{Path: "/fifo", Type: "p"},
			}
		}, "stat -c '%F %a %u %t:%T' /dev/net/tun /fifo", []string{"character special file 640 7 a:c8", "fifo 666 0 0:0"}},
		{
			"bind mounts", func(b *bundle) {
				b.write("../host.txt", "from the host")
				b.spec.Mounts = append(b.spec.Mounts,
					specs.Mount{Destination: "/etc/made.txt", Type: "bind", Source: filepath.Join(b.dir, "host.txt"), Options: []string{"rbind", "ro"}},
					specs.Mount{Destination: "/new/dir", Type: "bind", Source: "/usr", Options: []string{"rbind", "rro", "nosuid"}})
			}, "cat /etc/made.txt; touch /etc/made.txt; ls -d /new/dir/bin; grep ' /new/dir ' /proc/mounts",
			[]string{"from the host", "Read-only file system", "/new/dir/bin", "ro,nosuid"},
		},
		{"sysctl", func(b *bundle) {
			b.spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel.shmmni": "1234"}
		}, "cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmni", []string{"1", "1234"}},
		{"domainname", func(b *bundle) { b.spec.Domainname = "example.org" }, "cat /proc/sys/kernel/domainname", []string{"example.org"}},
		{"no /dev in the spec", func(b *bundle) {
			b.spec.Mounts = append(b.spec.Mounts[:1:1], b.spec.Mounts[4:]...)
			b.spec.Mounts[1].Destination = "/mq"
		}, "stat -c %t:%T /dev/null; readlink /dev/fd", []string{"1:3", "/proc/self/fd"}},
		{"oom score", func(b *bundle) { n := 555; b.spec.Process.OOMScoreAdj = &n }, "cat /proc/self/oom_score_adj", []string{"555"}},
		{"scheduler and I/O priority", func(b *bundle) {
			b.spec.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 5}
			b.spec.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_IDLE}
		}, "ionice; cut -d' ' -f19,41 /proc/self/stat", []string{"idle", "5 3"}},
		{
			"personality", func(b *bundle) { b.spec.Linux.Personality = &specs.LinuxPersonality{Domain: specs.PerLinux32} },
			"uname -m; cat /proc/self/personality",
			[]string{"i686", "00000008"},
		},
		{"cgroup namespace", func(*bundle) {}, "cat /proc/self/cgroup", ownCgroup()},
		{"seccomp", func(b *bundle) {
			b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActAllow,
				Syscalls:      []specs.LinuxSyscall{{Names: []string{"sethostname"}, Action: specs.ActErrno}},
			}
			b.spec.Process.Capabilities.Effective = append(b.spec.Process.Capabilities.Effective, "CAP_SYS_ADMIN")
			b.spec.Process.Capabilities.Permitted = append(b.spec.Process.Capabilities.Permitted, "CAP_SYS_ADMIN")
		}, "hostname x; cat /proc/self/status | grep Seccomp:", []string{"Operation not permitted", "Seccomp:\t2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBundle(t, "sh", "-c", tt.script)
			tt.change(b)
			out, _ := b.run()
			rest := out
			for _, w := range tt.want {
				i := strings.Index(rest, w)
				if i < 0 {
					t.Fatalf("no %q (in this order) in:\n%s", w, out)
				}
				rest = rest[i+len(w):]
			}
		})
	}
}

// ownCgroup is what a process sees that is in the root of its cgroup namespace.
func ownCgroup() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"0::/\n"}
	}
	return []string{":pids:/\n", ":memory:/\n"}
}

func (b *bundle) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, "rootfs", name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func TestTheEnvironmentHasEachVariableOnceAndAHome(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want string
	}{
		{"the last value counts", []string{"A=1", "B=2", "A=3"}, "B=2\nA=3\nHOME=/root\n"},
		{"a home that was given stays", []string{"HOME=/x"}, "HOME=/x\n"},
		{"an empty home is none", []string{"A=1", "HOME="}, "A=1\nHOME=/root\n"},
		{"an empty home after another is none", []string{"HOME=/x", "HOME="}, "HOME=/root\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBundle(t, "/bin/env")
			b.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
			b.spec.Process.Env = tt.env
			if out, code := b.run(); out != tt.want || code != 0 {
				t.Errorf("exit code %d, got %q, want %q", code, out, tt.want)
			}
		})
	}
}

func TestATmpfsTakesWhatItCovers(t *testing.T) {
	b := newBundle(t, "sh", "-c", "cat /data/sub/file; readlink /data/link; stat -c %a,%u:%g /data/sub /data/sub/file; touch /data/x; touch /data/sub/file && echo written")
	if err := os.MkdirAll(filepath.Join(b.dir, "rootfs/data/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("data/sub/file", "from the image\n")
	data := filepath.Join(b.dir, "rootfs/data")
	for _, err := range []error{
		os.Chmod(filepath.Join(data, "sub"), 0o777), os.Symlink("/etc/passwd", filepath.Join(data, "link")),
		os.Chown(filepath.Join(data, "sub/file"), 7, 8), os.Chmod(filepath.Join(data, "sub/file"), 0o755|os.ModeSetuid),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/data", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup", "ro"}})
	out, _ := b.run()
	want := "from the image\n/etc/passwd\n777,0:0\n4755,7:8\ntouch: /data/x: Read-only file system\ntouch: /data/sub/file: Read-only file system\n"
	if out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestTheOptionsOfABindMountSayEverythingOnceTheySayAnything(t *testing.T) {
	src := t.TempDir()
	if err := unix.Mount("tmpfs", src, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(src, unix.MNT_DETACH) })
	for i, tt := range []struct {
		options []string
		mapped  bool
		want    string
	}{
		{[]string{"bind"}, false, "rw,nosuid,nodev,noexec,relatime"},
		{[]string{"bind", "ro"}, false, "ro,relatime"},
		{[]string{"bind", "ro", "nosuid"}, false, "ro,nosuid,relatime"},
		{[]string{"bind", "ro"}, true, "ro,nosuid,nodev,noexec,relatime"},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			b := newBundle(t, "sh", "-c", "grep ' /mnt ' /proc/self/mounts | cut -d' ' -f4")
			if tt.mapped {
				b.mapped()
			}
			b.spec.Mounts = append(b.spec.Mounts, specs.Mount{Destination: "/mnt", Source: src, Options: tt.options})
			out, code := b.run()
			if got, _, _ := strings.Cut(strings.TrimSpace(out), ",inode64"); code != 0 || got != tt.want {
				t.Errorf("%v, mapped %v: exit code %d: got %q, want %q", tt.options, tt.mapped, code, out, tt.want)
			}
		})
	}
}
