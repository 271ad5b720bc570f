package pathsafe

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func read(t *testing.T, d *Dir, name string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := d.Read(MustName(name), buf)
	must(t, err)
	return strings.TrimSuffix(string(buf[:n]), "\n")
}

func TestReadWriteOfACgroup(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, n := group(t, h)
	must(t, g.Write(MustName("pids.max"), []byte("17")))
	if got := read(t, g, "pids.max"); got != "17" {
		t.Errorf("pids.max is %q", got)
	}
	f, err := g.OpenRead(MustName("pids.max"))
	must(t, err)
	defer f.Close()
	buf := make([]byte, 64)
	for _, want := range []string{"17\n", "18\n"} {
		m, err := f.ReadAt0(buf)
		if err != nil || string(buf[:m]) != want {
			t.Errorf("kept descriptor reads %q, %v", buf[:m], err)
		}
		must(t, g.Write(MustName("pids.max"), []byte("18")))
	}
	// Content that does not fit, by one byte and by more.
	for _, size := range []int{1, 2} {
		_, err = g.Read(MustName("pids.max"), buf[:size])
		wantErr(t, err, ErrTooBig)
		_, err = f.ReadAt0(buf[:size])
		wantErr(t, err, ErrTooBig)
	}
	if m, err := g.Read(MustName("pids.max"), buf[:3]); err != nil || m != 3 {
		t.Errorf("content that just fits: %d, %v", m, err)
	}
	again, created, err := h.Mkdir(n, 0o755)
	if err != nil || created {
		t.Fatalf("existing cgroup: created=%v, %v", created, err)
	}
	must(t, again.Close())
}

func TestAFileOfManyRecordsIsReadWhole(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	f, err := h.OpenRead(MustName("cgroup.procs"))
	must(t, err)
	defer f.Close()
	g, _ := group(t, h)
	for range 40 {
		p := sleeper(t)
		must(t, g.Write(MustName("cgroup.procs"), []byte(strconv.Itoa(p))))
	}
	if got := len(strings.Fields(read(t, g, "cgroup.procs"))); got != 40 {
		t.Errorf("%d processes", got)
	}
}

// sleeper starts a process that waits until the end of the test.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "60")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// A05, I2: a bind mount of another cgroup over a file's directory.
func TestACgroupMountedOverAnotherIsRefused(t *testing.T) {
	privateMounts(t)
	h, at := hierarchy(t, "pids")
	victim, victimName := group(t, h)
	_, ours := group(t, h)
	bind(t, filepath.Join(at, victimName.String()), filepath.Join(at, ours.String()))
	// The control: by path, the other cgroup is read.
	must(t, victim.Write(MustName("pids.max"), []byte("42")))
	if got, err := os.ReadFile(filepath.Join(at, ours.String(), "pids.max")); string(got) != "42\n" {
		t.Errorf("control case reads %q, %v", got, err)
	}
	_, err := h.Sub(ours.Rel())
	wantErr(t, err, ErrEscape, unix.EXDEV)
	_, _, err = h.Mkdir(ours, 0o755)
	wantErr(t, err, ErrEscape, unix.EXDEV)
	if got := read(t, victim, "pids.max"); got != "42" {
		t.Errorf("victim has %q", got)
	}
	must(t, unix.Unmount(filepath.Join(at, ours.String()), unix.MNT_DETACH))
}

// A06: a bind mount of another cgroup's file. A check of the filesystem type
// cannot see it: that is the limit of OpenRead, and the reason for Read.
func TestACgroupFileMountedOverAnotherIsRefused(t *testing.T) {
	privateMounts(t)
	h, at := hierarchy(t, "pids")
	victim, victimName := group(t, h)
	g, ours := group(t, h)
	must(t, victim.Write(MustName("pids.max"), []byte("42")))
	over := filepath.Join(at, ours.String(), "pids.max")
	bind(t, filepath.Join(at, victimName.String(), "pids.max"), over)
	_, err := g.Read(MustName("pids.max"), make([]byte, 8))
	wantErr(t, err, ErrEscape, unix.EXDEV)
	wantErr(t, g.Write(MustName("pids.max"), []byte("1")), ErrEscape, unix.EXDEV)
	// The controls: the unchecked and the statfs-checked open.
	if got, _ := os.ReadFile(over); string(got) != "42\n" {
		t.Errorf("control case reads %q", got)
	}
	f, err := g.OpenRead(MustName("pids.max"))
	must(t, err)
	buf := make([]byte, 8)
	if n, err := f.ReadAt0(buf); string(buf[:n]) != "42\n" {
		t.Errorf("statfs-checked open reads %q, %v", buf[:n], err)
	}
	must(t, f.Close())
	if got := read(t, victim, "pids.max"); got != "42" {
		t.Errorf("victim has %q", got)
	}
	must(t, unix.Unmount(over, unix.MNT_DETACH))
}

// A07, and the statfs check of OpenRead.
func TestAFakeCgroupIsNotWritten(t *testing.T) {
	privateMounts(t)
	h, at := hierarchy(t, "pids")
	g, ours := group(t, h)
	dir := filepath.Join(at, ours.String())
	tmpfs(t, dir)
	plant(t, dir, "file cgroup.procs x", "file pids.max 5")
	_, err := h.Sub(ours.Rel())
	wantErr(t, err, ErrEscape, unix.EXDEV)
	// A Dir from before still means the real one.
	must(t, g.Write(MustName("pids.max"), []byte("9")))
	for f, want := range map[string]string{"cgroup.procs": "x", "pids.max": "5"} {
		if got, _ := os.ReadFile(filepath.Join(dir, f)); string(got) != want {
			t.Errorf("fake %s is now %q", f, got)
		}
	}
	must(t, unix.Unmount(dir, unix.MNT_DETACH))
	// A file of another filesystem in the place of one: seen by openat2 and by
	// fstatfs.
	plain := filepath.Join(tempDir(t), "f")
	must(t, os.WriteFile(plain, []byte("fake"), 0o644))
	over := filepath.Join(dir, "pids.max")
	bind(t, plain, over)
	_, err = g.Read(MustName("pids.max"), make([]byte, 8))
	wantErr(t, err, ErrEscape)
	_, err = g.OpenRead(MustName("pids.max"))
	wantErr(t, err, ErrEscape)
	wantErr(t, g.Write(MustName("pids.max"), []byte("1")), ErrEscape)
	if got, _ := os.ReadFile(plain); string(got) != "fake" {
		t.Errorf("fake file is now %q", got)
	}
	must(t, unix.Unmount(over, unix.MNT_DETACH))
}

// A33: a directory that is renamed is followed; its old name is not.
func TestARenamedCgroupIsTheSameObject(t *testing.T) {
	h, at := hierarchy(t, "pids")
	parent, pn := group(t, h)
	g, _, err := parent.Mkdir(MustName("ctr"), 0o755)
	must(t, err)
	defer g.Close()
	dir := filepath.Join(at, pn.String())
	must(t, os.Rename(filepath.Join(dir, "ctr"), filepath.Join(dir, "moved")))
	must(t, os.Mkdir(filepath.Join(dir, "ctr"), 0o755))
	must(t, g.Write(MustName("pids.max"), []byte("7")))
	for name, want := range map[string]string{"moved": "7\n", "ctr": "max\n"} {
		if got, _ := os.ReadFile(filepath.Join(dir, name, "pids.max")); string(got) != want {
			t.Errorf("%s has %q", name, got)
		}
	}
}

// A49: the devices controller takes one line of a write and drops the rest
// without a word, so one write is one line here; what the kernel does report as
// short is an error.
func TestAShortWriteIsAnError(t *testing.T) {
	runChild(t, "short-write", nil)
}

func init() {
	// A file size limit makes a regular file take a part of a write.
	children["short-write"] = func() error {
		dir, err := os.MkdirTemp("", "ibex-test-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s, err := OpenState(dir)
		if err != nil {
			return err
		}
		f, err := s.Create(MustName("f"), 0o600)
		if err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 3, Max: 3}); err != nil {
			return err
		}
		if n, err := f.Write([]byte("12345")); n != 3 || !errors.Is(err, ErrShortWrite) {
			return errors.New("File.Write took a short write for a whole one")
		}
		if err := s.Write(MustName("f"), []byte("12345")); !errors.Is(err, ErrShortWrite) {
			return errors.New("Dir.Write took a short write for a whole one")
		}
		return nil
	}
}

// I5, I6: what the policies forbid is refused before the kernel is asked.
func TestPoliciesForbid(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, _ := group(t, h)
	r, _ := root(t)
	p, err := OpenProc(true)
	must(t, err)
	defer p.Close()
	n, rel := MustName("x"), MustRel("x")
	for name, err := range map[string]error{
		"create in a cgroup":   second(g.Create(n, 0o600)),
		"replace in a cgroup":  g.WriteFileAtomic(n, nil, 0o600),
		"unlink in a cgroup":   g.Unlink(n),
		"ReadFile of a cgroup": second(g.ReadFile(n, 1)),
		"resolve in a cgroup":  second(g.Resolve(inRoot(t, "x"), KindDir)),
		"strict of a cgroup":   second(g.Strict()),
		"create in procfs":     second(p.Create(n, 0o600)),
		"mkdir in procfs":      third(p.Mkdir(n, 0o700)),
		"rmdir in procfs":      p.Rmdir(n),
		"unlink in procfs":     p.Unlink(n),
		"create in a root":     second(r.Create(n, 0o600)),
		"mkdir in a root":      third(r.Mkdir(n, 0o700)),
		"mkdirall in a root":   third(r.MkdirAll(rel, 0o700)),
		"rmdir in a root":      r.Rmdir(n),
		"unlink in a root":     r.Unlink(n),
		"read in a root":       second(r.Read(n, nil)),
		"openread in a root":   second(r.OpenRead(n)),
		"write in a root":      r.Write(n, nil),
		"raw O_CREAT":          second(PrepareRaw(g, rel, unix.O_CREAT|unix.O_WRONLY)),
		"raw O_TRUNC":          second(PrepareRaw(g, rel, unix.O_TRUNC|unix.O_WRONLY)),
		"raw O_TMPFILE":        second(PrepareRaw(g, rel, unix.O_TMPFILE|unix.O_WRONLY)),
		"raw read in a root":   second(PrepareRaw(r, rel, unix.O_RDONLY)),
	} {
		if !errors.Is(err, ErrPolicy) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The last guard, below all of these.
	for _, flags := range []uint64{unix.O_CREAT | unix.O_WRONLY, unix.O_TRUNC | unix.O_WRONLY, unix.O_TMPFILE | unix.O_WRONLY} {
		for _, d := range []*Dir{g, p.Dir} {
			if _, errno := d.open(d.FD(), cgroupProcs.c, flags, 0o600); errno != unix.EINVAL {
				t.Errorf("flags %#x in %v: %v", flags, d, errno)
			}
		}
	}
}

// A read by path, of a cgroup without a Dir: cgroupfs and a regular file only.
func TestReadCgroupFile(t *testing.T) {
	h, at := hierarchy(t, "pids")
	g, n := group(t, h)
	must(t, g.Write(MustName("pids.max"), []byte("6")))
	buf := make([]byte, 64)
	path := filepath.Join(at, n.String(), "pids.max")
	if m, err := ReadCgroupFile(path, buf); err != nil || string(buf[:m]) != "6\n" {
		t.Errorf("%q, %v", buf[:m], err)
	}
	_, err := ReadCgroupFile(path, buf[:1])
	wantErr(t, err, ErrTooBig)
	dir := tempDir(t)
	plant(t, dir, "file pids.max 9", "link l "+path, "fifo p")
	for path, want := range map[string]error{
		dir + "/pids.max":        ErrType,
		dir + "/l":               unix.ELOOP,
		dir + "/p":               ErrType,
		filepath.Dir(path):       ErrType,
		"/proc/self/status":      ErrType,
		at + "/../pids.max":      unix.EINVAL,
		"sys/fs/cgroup/pids/x":   unix.EINVAL,
		at + "/no/such/cgroup/x": unix.ENOENT,
	} {
		_, err := ReadCgroupFile(path, buf)
		wantErr(t, err, want)
	}
}
