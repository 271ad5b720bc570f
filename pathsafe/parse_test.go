package pathsafe

import (
	"errors"
	"path"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A13.
func TestParseRelRefuses(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"empty", ""},
		{"absolute", "/a"},
		{"trailing slash", "a/"},
		{"double slash", "a//b"},
		{"dot", "."},
		{"dot first", "./a"},
		{"dot last", "a/."},
		{"dotdot", ".."},
		{"dotdot last", "a/.."},
		{"dotdot inside", "a/../b"},
		{"NUL", "a\x00b"},
		{"newline", "a\nb"},
		{"DEL", "a\x7f"},
		{"escape", "\x1b[2J"},
		{"4096 bytes", strings.Repeat("a/", 2048)[:4095] + "a"},
		{"256 bytes in a component", strings.Repeat("a", 256)},
		{"256 bytes in the last component", "a/" + strings.Repeat("a", 256)},
		{"129 components", strings.Repeat("a/", 128) + "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRel(tt.in)
			if err == nil {
				t.Fatalf("accepted as %q", r)
			}
			var pe *ParseError
			if !errors.As(err, &pe) || pe.Input != tt.in {
				t.Errorf("error %v does not carry the input", err)
			}
			if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Errorf("message is not quoted: %q", err)
			}
			wantErr(t, err, unix.EINVAL)
		})
	}
}

// A14.
func TestParseRelAcceptsWhatFilesystemsDo(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, in := range []string{
		"a", "a.b", "...", "..a", "a b", "größe/目录", "a/b/c", "-rf", `a\b`,
		strings.Repeat(long+"/", 15) + long, // 4,095 bytes
		strings.Repeat("a/", 127) + "a",     // 128 components
	} {
		r, err := ParseRel(in)
		if err != nil {
			t.Errorf("%.40q: %v", in, err)
		} else if r.String() != in {
			t.Errorf("%.40q became %.40q", in, r)
		}
	}
}

func TestParseNameTakesOneComponent(t *testing.T) {
	for _, in := range []string{"a/b", "", "..", "/", "a\nb", strings.Repeat("a", 256)} {
		if n, err := ParseName(in); err == nil {
			t.Errorf("%q accepted as %q", in, n)
		}
	}
	if n, err := ParseName("memory.max"); err != nil || n.String() != "memory.max" || n.Rel().String() != "memory.max" {
		t.Errorf("memory.max: %q, %v", n, err)
	}
}

// A15: a cgroup name of the spec is refused before any system call. The parser
// makes none, and there is no other way to a Name.
func TestACgroupNameWithANewlineIsAParseError(t *testing.T) {
	_, err := ParseName("web\n1")
	var pe *ParseError
	if !errors.As(err, &pe) {
		t.Fatalf("error is %T", err)
	}
}

func TestParseInRoot(t *testing.T) {
	for in, want := range map[string]string{
		"": "/", "/": "/", "///": "/", ".": "/", "a": "/a", "/a": "/a", "//a/../b": "/a/../b", "../..": "/../..", "/a/": "/a/",
	} {
		if p, err := ParseInRoot(in); err != nil || p.String() != want {
			t.Errorf("%q became %q, %v; want %q", in, p, err, want)
		}
	}
	for _, in := range []string{"a\x00b", strings.Repeat("a", 4096)} {
		if _, err := ParseInRoot(in); err == nil {
			t.Errorf("%.20q accepted", in)
		}
	}
	if _, err := ParseInRoot(strings.Repeat("a/", 2047) + "a"); err != nil {
		t.Errorf("4,095 bytes: %v", err)
	}
}

// The zero values of the path types reach no system call as a path.
func TestZeroPathsAreRefused(t *testing.T) {
	d, _ := stateDir(t)
	r, _ := root(t)
	buf := make([]byte, 8)
	for name, err := range map[string]error{
		"Read":     second(d.Read(Name{}, buf)),
		"OpenRead": second(d.OpenRead(Name{})),
		"Write":    d.Write(Name{}, buf),
		"Sub":      second(d.Sub(Rel{})),
		"Create":   second(d.Create(Name{}, 0o600)),
		"Atomic":   d.WriteFileAtomic(Name{}, buf, 0o600),
		"Mkdir":    third(d.Mkdir(Name{}, 0o700)),
		"MkdirAll": third(d.MkdirAll(Rel{}, 0o700)),
		"Rmdir":    d.Rmdir(Name{}),
		"Unlink":   d.Unlink(Name{}),
		"Resolve":  second(r.Resolve(InRoot{}, KindDir)),
		"MkTarget": second(r.MkTarget(InRoot{}, KindDir, 0o755)),
		"Stat":     second(r.Stat(InRoot{})),
		"ReadHead": second(r.ReadHead(InRoot{}, buf)),
		"Raw":      second(PrepareRaw(d, Rel{}, unix.O_RDONLY)),
	} {
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }

// A48.
func TestIdentityIsComparedInFull(t *testing.T) {
	a := ID{Dev: 1<<40 | 5, Ino: 1<<32 + 7, Mnt: 1<<33 + 9}
	for name, b := range map[string]ID{
		"inode":  {Dev: a.Dev, Ino: 7, Mnt: a.Mnt},
		"device": {Dev: 5, Ino: a.Ino, Mnt: a.Mnt},
	} {
		if a.SameObject(b) {
			t.Errorf("%s: truncated to 32 bits", name)
		}
	}
	if a.SameMount(ID{Mnt: 9}) || a.SameMount(ID{Mnt: a.Mnt, MntUnique: true}) {
		t.Error("mount: truncated, or a reusable id taken for a unique one")
	}
	if !a.SameObject(ID{Dev: a.Dev, Ino: a.Ino}) || !a.SameMount(ID{Mnt: a.Mnt}) {
		t.Error("the same is not the same")
	}
	// The largest user is not root, nor is one whose low half is 0.
	for _, uid := range []int{1<<32 - 2, 1 << 16, 1 << 31} {
		s, dir := stateDir(t, "file f x")
		must(t, unix.Lchown(path.Join(dir, "f"), uid, 0))
		wantErr(t, second(s.Read(MustName("f"), nil)), ErrType)
		must(t, unix.Lchown(dir, uid, 0))
		wantErr(t, second(OpenState(dir)), ErrType)
	}
}

// The same for a real inode above 2^32: the id of the file's identity is what
// statx says, no matter through which call it came.
func TestIdentityAgreesWithStat(t *testing.T) {
	r, dir := root(t, "file f x")
	id, err := r.Stat(inRoot(t, "f"))
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(path.Join(dir, "f"), &st))
	if id.Ino != st.Ino || id.Dev != st.Dev || id.Mode != st.Mode {
		t.Errorf("identity %+v, stat dev=%d ino=%d mode=%o", id, st.Dev, st.Ino, st.Mode)
	}
}

// T33 and A38, the keys.
func TestSysctlKeys(t *testing.T) {
	for _, tt := range []struct {
		key, path string
		ns        int
	}{
		{"net.ipv4.ip_forward", "sys/net/ipv4/ip_forward", unix.CLONE_NEWNET},
		{"net/ipv4/ip_forward", "sys/net/ipv4/ip_forward", unix.CLONE_NEWNET},
		{"net.ipv4.conf.eth0/1.rp_filter", "sys/net/ipv4/conf/eth0.1/rp_filter", unix.CLONE_NEWNET},
		{"net/ipv4/conf/eth0.1/rp_filter", "sys/net/ipv4/conf/eth0.1/rp_filter", unix.CLONE_NEWNET},
		{"net.ipv4.conf.br-lan.rp_filter", "sys/net/ipv4/conf/br-lan/rp_filter", unix.CLONE_NEWNET},
		{"kernel.shm_rmid_forced", "sys/kernel/shm_rmid_forced", unix.CLONE_NEWIPC},
		{"kernel.msgmax", "sys/kernel/msgmax", unix.CLONE_NEWIPC},
		{"kernel.sem", "sys/kernel/sem", unix.CLONE_NEWIPC},
		{"fs.mqueue.msg_max", "sys/fs/mqueue/msg_max", unix.CLONE_NEWIPC},
		{"kernel.domainname", "sys/kernel/domainname", unix.CLONE_NEWUTS},
		{"user.max_user_namespaces", "sys/user/max_user_namespaces", unix.CLONE_NEWUSER},
	} {
		s, err := ParseSysctl(tt.key)
		if err != nil || s.Path().String() != tt.path || s.Namespace() != tt.ns || s.Key() != tt.key {
			t.Errorf("%q: path %q, namespace %#x, %v", tt.key, s.Path(), s.Namespace(), err)
		}
	}
	for _, key := range []string{
		"", "net", "kernel", ".", "/", "..", "net.", "net/", ".net.x", "/net/x",
		"kernel.core_pattern", "kernel/core_pattern", "kernel.hostname", "kernel.modprobe", "vm.swappiness",
		"net.ipv4.x+kernel.core_pattern=|/bin/x", "net.ipv4.x kernel.core_pattern",
		"net/../kernel/core_pattern", "net.//.kernel.core_pattern", "net/ipv4/../../kernel/core_pattern",
		"net./././kernel.core_pattern", "net..ipv4", "net//ipv4", "net.ipv4.", "Net.ipv4.ip_forward", "net.ipv4.IP_FORWARD",
		"kernel.shm_rmid_forced.x", "kernel.shm", "kernel/shm_rmid_forced/", "fs.mqueue", "fs.mqueue.", "fs.file-max",
		"netx.ipv4", "userx.y", "net.ipv4.\x00x", "net.ipv4.x\n", "net.ipv4.conf.größe", strings.Repeat("net.a", 1000),
	} {
		if s, err := ParseSysctl(key); err == nil {
			t.Errorf("%.60q accepted as %q", key, s.Path())
		}
	}
}

// A38, the values.
func TestSysctlValues(t *testing.T) {
	for _, val := range []string{"1\n", "1\nkernel.core_pattern=x", "1\x00", strings.Repeat("1", 5000)} {
		if CheckSysctlValue(val) == nil {
			t.Errorf("%.20q accepted", val)
		}
	}
	for _, val := range []string{"", "1", "1024 65535", "1024\t65535", strings.Repeat("1", 4095)} {
		if err := CheckSysctlValue(val); err != nil {
			t.Errorf("%.20q: %v", val, err)
		}
	}
}

func TestSysctlReadBackKnowsTheKernelsWays(t *testing.T) {
	for _, tt := range []struct {
		wrote, read string
		same        bool
	}{
		{"1", "1\n", true},
		{"3 1,2", "3\t1-2\n", true},
		{"3 1,2", "3\t1-3\n", false},
		{"1024 65535", "1024\t65535\n", true},
		{"0x10", "16\n", true},
		{"1,2,3,8080", "1-3,8080\n", true},
		{"1,2,3", "1-4\n", false},
		{"cubic", "cubic\n", true},
		{"cubic", "reno\n", false},
		{"1", "0\n", false},
		{"", "\n", true},
		{"1", "\n", false},
		{"1 2 3", "1\t2\n", false},
		{"1", "1\t2\t3\n", true}, // the first of a vector
	} {
		if got := sameSysctl("sys/net/x", tt.wrote, tt.read); got != tt.same {
			t.Errorf("wrote %q, reads %q: %v", tt.wrote, tt.read, got)
		}
	}
	const ms = "sys/net/ipv4/neigh/default/base_reachable_time_ms"
	if !sameSysctl(ms, "30001", "30000\n") || sameSysctl(ms, "30011", "30000\n") {
		t.Error("milliseconds are not compared in ticks")
	}
}

func TestMountInfoParser(t *testing.T) {
	const text = `22 27 0:21 / /proc rw,relatime - proc proc rw
36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
40 31 0:37 /.. /sys/fs/cgroup/systemd rw - cgroup  rw,name=systemd
`
	m, err := ParseMountInfo(text)
	must(t, err)
	if len(m) != 3 || m[1].MountPoint != "/mnt 2" || len(m[1].Optional) != 2 || m[1].FSType != "ext3" ||
		m[1].ID != 36 || m[1].Parent != 35 || m[1].Dev != unix.Mkdev(98, 0) || m[2].Root != "/.." || m[2].SuperOptions != "rw,name=systemd" {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{"x", "22 27 0:21 / /proc rw,relatime proc proc rw x y", "a 27 0:21 / /proc rw - proc proc rw", "22 27 0 / /proc rw - proc proc rw"} {
		if _, err := ParseMountInfo(bad); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}
