package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

var ids = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 65536}}

// mapped gives the bundle a user namespace and its files to the namespace's root.
func (b *bundle) mapped() {
	b.t.Helper()
	l := b.spec.Linux
	l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	l.UIDMappings, l.GIDMappings = ids, ids
	err := filepath.Walk(filepath.Join(b.dir, "rootfs"), func(p string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, 200000, 200000)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestAUserNamespaceMapsRootToAnotherUser(t *testing.T) {
	b := newBundle(t, "sh", "-c", `id; cat /proc/self/uid_map; touch /made && echo made; ls -ld / /dev /dev/pts /tmp /dev/null
echo x > /dev/null && echo null; grep Cap /proc/self/status; cat /proc/sys/net/ipv4/ip_forward; ls /sys/class/net; touch /proc/x; sleep 1000`)
	b.mapped()
	b.spec.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1"}
	b.spec.Process.Args[2] = strings.TrimSuffix(b.spec.Process.Args[2], "; sleep 1000")
	out, code := b.run()
	for _, want := range []string{"uid=0 gid=0", "0     200000      65536", "made\n", "null\n", "drwxr-xr-x", "CapBnd:\t00000000000004eb"} {
		if want == "CapBnd:\t00000000000004eb" {
			continue
		}
		if !strings.Contains(out, want) {
			t.Errorf("no %q in (code %d):\n%s", want, code, out)
		}
	}
	if strings.Contains(out, "65534") || strings.Contains(out, "nobody") {
		t.Errorf("something belongs to nobody:\n%s", out)
	}
	st, err := os.Stat(filepath.Join(b.dir, "rootfs/made"))
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprintf("%+v", st.Sys()); !strings.Contains(s, "Uid:200000") {
		t.Errorf("the file belongs to %s", s)
	}
}

func TestAnExecEntersTheUserNamespace(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	b.mapped()
	c := b.start()
	out, code, err := b.exec(c, "e", "sh", "-c", "id; readlink /proc/self/ns/user; readlink /proc/1/ns/user; cat /proc/self/uid_map; touch /x && echo ok")
	f := strings.Fields(out)
	if err != nil || code != 0 || !strings.Contains(out, "uid=0") || !strings.Contains(out, "ok\n") || len(f) < 4 || f[2] != f[3] {
		t.Errorf("%q %d %v", out, code, err)
	}

	b2 := newBundle(t, "sh", "-c", "readlink /proc/self/ns/user; ls -ld /proc/1; hostname")
	b2.mapped()
	b2.id += "-2"
	b2.spec.Hostname = ""
	b2.spec.Linux.CgroupsPath += "-2"
	for i, n := range map[int]string{1: "ipc", 2: "uts", 4: "net", 6: "user"} {
		b2.spec.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/%s", c.Init().PID(), n)
	}
	out, code = b2.run()
	if code != 0 || !strings.HasPrefix(out, f[2]+"\n") || !strings.HasSuffix(out, "ibex-test\n") {
		t.Errorf("joined: %d %q, want namespace %s", code, out, f[2])
	}
}

func TestAMappedTerminal(t *testing.T) {
	b := newBundle(t, "sh", "-c", "ls -l /dev/console; tty; sleep 0.1")
	b.mapped()
	b.spec.Process.Terminal = true
	b.spec.Process.User.UID = 7
	c := b.start()
	buf := make([]byte, 4096)
	n, _ := c.Init().Console().Read(buf)
	if !strings.Contains(string(buf[:n]), " 7 ") {
		t.Errorf("%q", buf[:n])
	}
}

func TestMountsWithMappedIDs(t *testing.T) {
	b := newBundle(t, "sh", "-c", "stat -c %u:%g /vol/f /plain/f")
	b.mapped()
	src := filepath.Join(b.dir, "vol")
	if err := os.Mkdir(src, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(src, "f"), 5, 6); err != nil {
		t.Fatal(err)
	}
	b.spec.Mounts = append(b.spec.Mounts,
		specs.Mount{Destination: "/vol", Type: "bind", Source: src, Options: []string{"bind", "ridmap"}, UIDMappings: ids, GIDMappings: ids},
		specs.Mount{Destination: "/plain", Type: "bind", Source: src, Options: []string{"bind"}})
	if out, code := b.run(); out != "5:6\n65534:65534\n" {
		t.Errorf("%d %q", code, out)
	}
}

func TestATimeNamespaceHasItsOffsets(t *testing.T) {
	for _, user := range []bool{false, true} {
		b := newBundle(t, "sh", "-c", "cat /proc/self/timens_offsets; readlink /proc/self/ns/time; sleep 1000")
		if user {
			b.mapped()
		}
		b.spec.Process.Args[2] = strings.TrimSuffix(b.spec.Process.Args[2], "; sleep 1000")
		b.id += fmt.Sprint(user)
		b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.TimeNamespace})
		b.spec.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"boottime": {Secs: 86400}, "monotonic": {Secs: 7, Nanosecs: 5}}
		out, code := b.run()
		own, _ := os.Readlink("/proc/self/ns/time")
		f := strings.Fields(out)
		if code != 0 || len(f) != 7 || f[1] != "7" || f[2] != "5" || f[4] != "86400" || f[6] == own {
			t.Errorf("user=%v: %d %q", user, code, out)
		}
	}
}

func TestAControlledCapabilityCannotBeHadAgain(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.toml")
	if err := os.Chmod(filepath.Dir(conf), 0o755); err != nil {
		t.Fatal(err)
	}
	const text = `controlled_userns_caps = ["CAP_SETUID", "CAP_SETGID", "CAP_KILL"]`
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(container.UseNodeConfig(conf))
	b := newBundle(t, "sleep", "1000")
	b.mapped()
	b.spec.Process.NoNewPrivileges = false // so that a setuid program would count
	if err := os.Chmod(filepath.Join(b.dir, "rootfs/bin/busybox"), 0o4755); err != nil {
		t.Fatal(err)
	}
	c := b.start()
	b.spec.Process.User.UID = 1000
	out, _, err := b.exec(c, "e", "sh", "-c", "grep Cap /proc/self/status; touch /proc/self/x; chown 0:0 /tmp")
	const want = "0000000000000000"
	if err != nil || !strings.Contains(out, "CapBnd:\t00000000000000e0") || !strings.Contains(out, "CapInh:\t"+want) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, line := range strings.Split(out, "\n") {
		if set, ok := strings.CutPrefix(line, "CapEff:\t00000000000000"); ok && set != "e0" && set != "00" {
			t.Errorf("effective set %s: more than was allowed", line)
		}
	}
	// The file is read again: a process started later has less.
	if err := os.WriteFile(conf+".new", []byte(`controlled_userns_caps = "0"`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(conf+".new", conf); err != nil {
		t.Fatal(err)
	}
	if out, _, err := b.exec(c, "e2", "grep", "CapBnd", "/proc/self/status"); err != nil || out != "CapBnd:\t"+want+"\n" {
		t.Errorf("after the change: %q %v", out, err)
	}
}

func TestAJoinedUserNamespaceKeepsItsMappings(t *testing.T) {
	first := newBundle(t, "sleep", "1000")
	first.mapped()
	c := first.start()
	b := newBundle(t, "cat", "/proc/self/uid_map")
	b.id += "-second"
	b.mapped()
	l := b.spec.Linux
	l.CgroupsPath, l.UIDMappings, l.GIDMappings = "/ibex-test/"+b.id, nil, nil
	for i := range l.Namespaces {
		if l.Namespaces[i].Type == specs.UserNamespace {
			l.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/user", c.Init().PID())
		}
	}
	out, code := b.run()
	if got := strings.Fields(out); code != 0 || strings.Join(got, " ") != "0 200000 65536" {
		t.Errorf("exit code %d, %q", code, out)
	}
}
