package pathsafe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The control: what a program that joins strings opens instead.
func escapesByString(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(data), "host secret") {
		t.Errorf("control case does not escape: %q, %v", data, err)
	}
}

// A16: magic links of a procfs inside the root lead nowhere.
func TestMagicLinksInARootAreRefused(t *testing.T) {
	privateMounts(t)
	host := decoy(t)
	d, dir := root(t, "dir p", "link x /p/self/root", "link y /p/self/fd/3", "link z p/self/root"+host+"/secret")
	must(t, unix.Mount("proc", filepath.Join(dir, "p"), "proc", 0, ""))
	escapesByString(t, filepath.Join(dir, "p/self/root", host, "secret"))
	for _, path := range []string{
		"p/self/root/etc/passwd", "p/self/exe", "p/self/fd/0", "p/self/cwd", "p/thread-self/root", "x", "x/etc/passwd", "y", "z",
	} {
		for _, tree := range []*Dir{d, strict(t, d)} {
			target, err := tree.Resolve(inRoot(t, path), KindAnyNonLink)
			if err == nil {
				t.Fatalf("%s resolved to %+v", path, target.ID())
			}
			wantErr(t, err, ErrEscape)
		}
	}
	if _, err := d.ReadHead(inRoot(t, "z"), make([]byte, 8)); err == nil {
		t.Error("ReadHead went through a magic link")
	}
}

// A17 and CVE-2019-18837: links stay inside the root, whatever they say.
func TestLinksAreScopedToTheRoot(t *testing.T) {
	host := decoy(t)
	d, dir := root(t,
		"link abs "+host, "link up ../../../../../../../.."+host, "link dangling /nowhere",
		"file in"+host+"/secret inside", "link in2 /in"+host+"/secret", "link top ..", "file f x")
	escapesByString(t, filepath.Join(dir, "abs/secret"))
	escapesByString(t, filepath.Join(dir, "up/secret"))
	for path, want := range map[string]error{
		"abs/secret":   unix.ENOENT,
		"up/secret":    unix.ENOENT,
		"dangling":     unix.ENOENT,
		"f/x":          unix.ENOTDIR,
		"f/":           unix.ENOTDIR,
		"../" + host:   unix.ENOENT,
		"/abs/../abs/": unix.ENOENT,
	} {
		if _, err := d.Resolve(inRoot(t, path), KindAnyNonLink); err == nil {
			t.Errorf("%s resolved", path)
		} else {
			wantErr(t, err, want)
		}
	}
	buf := make([]byte, 16)
	n, err := d.ReadHead(inRoot(t, "in2"), buf)
	if err != nil || string(buf[:n]) != "inside" {
		t.Errorf("absolute link inside the root: %q, %v", buf[:n], err)
	}
	for _, path := range []string{"top", "top/..", "../..", "/", ""} {
		id, err := d.Stat(inRoot(t, path))
		if err != nil || !id.SameObject(d.ID()) {
			t.Errorf("%q is not the root: %v", path, err)
		}
	}
}

// A18.
func TestChainsOfLinksEnd(t *testing.T) {
	lines := []string{"file l0 end", "link loop loop", "link m1 m2", "link m2 m1"}
	for i := 1; i <= 41; i++ {
		lines = append(lines, fmt.Sprintf("link l%d l%d", i, i-1))
	}
	d, _ := root(t, lines...)
	for _, ok := range []string{"l39", "l40"} {
		target, err := d.Resolve(inRoot(t, ok), KindReg)
		must(t, err)
		must(t, target.Close())
	}
	for _, bad := range []string{"l41", "loop", "m1"} {
		_, err := d.Resolve(inRoot(t, bad), KindAnyNonLink)
		wantErr(t, err, unix.ELOOP, ErrEscape)
		_, err = d.MkTarget(inRoot(t, bad), KindDir, 0o755)
		wantErr(t, err, unix.ELOOP)
	}
}

// A19 and CVE-2019-19921 and its kin: where a link must not be, it is refused in
// every place, and an O_PATH result is never a link.
func TestStrictTreesTakeNoLinks(t *testing.T) {
	d, dir := root(t, "dir real/sub", "link proc real", "link sys /", "link up ..", "link real/l sub")
	s := strict(t, d)
	if _, err := os.Stat(filepath.Join(dir, "proc/sub")); err != nil {
		t.Error("control case: the link does not lead anywhere")
	}
	for _, path := range []string{"proc", "/proc", "proc/sub", "sys", "up", "real/l"} {
		for _, kind := range []Kind{KindDir, KindAnyNonLink} {
			_, err := s.Resolve(inRoot(t, path), kind)
			wantErr(t, err, ErrEscape)
		}
		_, err := s.MkTarget(inRoot(t, path), KindDir, 0o755)
		wantErr(t, err, ErrEscape)
	}
	target, err := s.Resolve(inRoot(t, "/real/sub"), KindDir)
	must(t, err)
	must(t, target.Close())
	for _, path := range []string{"..", "real/../.."} {
		_, err := s.Resolve(inRoot(t, path), KindDir)
		wantErr(t, err, ErrEscape)
	}
}

// A20: within 100 ms; the test's own limit is what would expire.
func TestAFIFODoesNotBlock(t *testing.T) {
	s, _ := stateDir(t, "fifo f")
	r, _ := root(t, "fifo etc/passwd", "link l etc/passwd")
	buf := make([]byte, 8)
	done := make(chan error, 4)
	go func() {
		_, err := s.Read(MustName("f"), buf)
		done <- err
		_, err = s.ReadFile(MustName("f"), 10)
		done <- err
		_, err = r.ReadHead(inRoot(t, "etc/passwd"), buf)
		done <- err
		_, err = r.Resolve(inRoot(t, "l"), KindReg)
		done <- err
	}()
	for range 4 {
		select {
		case err := <-done:
			wantErr(t, err, ErrType)
		case <-time.After(5 * time.Second):
			t.Fatal("blocked")
		}
	}
}

// A21.
func TestWritingToAFIFOIsRefused(t *testing.T) {
	s, dir := stateDir(t, "fifo f")
	err := s.Write(MustName("f"), []byte("x"))
	wantErr(t, err, ErrType, unix.ENXIO)
	// With a reader the open works, and then the type is seen.
	reader, err := unix.Open(filepath.Join(dir, "f"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(reader)
	wantErr(t, s.Write(MustName("f"), []byte("x")), ErrType)
	if n, _ := unix.Read(reader, make([]byte, 1)); n > 0 {
		t.Error("written to the FIFO")
	}
}

// A22, devices: none is opened. A watch on the node sees every open but those
// with O_PATH; the control case shows that.
func TestDevicesInARootAreNotOpened(t *testing.T) {
	d, dir := root(t, "dir dev")
	nodes := map[string]struct {
		mode uint32
		dev  uint64
	}{
		"tty":      {unix.S_IFCHR, unix.Mkdev(5, 0)},
		"watchdog": {unix.S_IFCHR, unix.Mkdev(1, 5)}, // a harmless stand-in for 10:130
		"loop0":    {unix.S_IFBLK, unix.Mkdev(7, 0)},
	}
	for name, n := range nodes {
		path := filepath.Join(dir, "dev", name)
		if err := unix.Mknod(path, n.mode|0o666, int(n.dev)); err != nil {
			t.Skipf("no device nodes here: mknod: %v", err)
		}
		opened := watchOpens(t, path)
		_, err := d.ReadHead(inRoot(t, "dev/"+name), make([]byte, 8))
		wantErr(t, err, ErrType)
		_, err = d.Resolve(inRoot(t, "dev/"+name), KindReg)
		wantErr(t, err, ErrType)
		id, err := d.Stat(inRoot(t, "dev/"+name))
		if err != nil || id.Rdev != n.dev {
			t.Errorf("%s: identity %+v, %v", name, id, err)
		}
		if opened() {
			t.Errorf("%s was opened", name)
		}
		if name == "watchdog" {
			f, err := os.Open(path)
			must(t, err)
			_ = f.Close()
			if !opened() {
				t.Error("control case: the watch does not see an open")
			}
		}
	}
}

// watchOpens returns a function that reports whether the file at path was opened
// since it was last asked, by an open that is not O_PATH.
func watchOpens(t *testing.T, path string) func() bool {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(watch) })
	_, err = unix.InotifyAddWatch(watch, path, unix.IN_OPEN)
	must(t, err)
	return func() bool {
		n, _ := unix.Read(watch, make([]byte, 4096))
		return n > 0
	}
}

// A22, terminals: a session leader without a controlling terminal does not get
// one by opening a file that turns out to be a terminal.
func TestNoOpenTakesAControllingTerminal(t *testing.T) {
	runChild(t, "ctty", nil)
}

func init() {
	children["ctty"] = func() error {
		if _, err := unix.Setsid(); err != nil && err != unix.EPERM {
			return err
		}
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "ibex-test-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := unix.Mknod(dir+"/pty", unix.S_IFCHR|0o600, int(unix.Mkdev(136, uint32(n)))); err != nil {
			return err
		}
		s, err := OpenState(dir)
		if err != nil {
			return err
		}
		if _, err := s.Read(MustName("pty"), make([]byte, 1)); err == nil {
			return fmt.Errorf("a terminal was read")
		}
		if tty, err := controllingTTY(); err != nil || tty != "0" {
			return fmt.Errorf("controlling terminal %s, %w", tty, err)
		}
		// The control: the same open without O_NOCTTY.
		if _, err := unix.Open(dir+"/pty", unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			if tty, _ := controllingTTY(); tty == "0" {
				return fmt.Errorf("control case takes no terminal either")
			}
		}
		return nil
	}
}

// controllingTTY is the field tty_nr of /proc/self/stat.
func controllingTTY() (string, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "", err
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return f[4], nil
}

// A23, I4.
func TestKindsOfFiles(t *testing.T) {
	s, dir := stateDir(t, "dir d", "file f x", "link l f", "link dangling nowhere", "file sub/f x")
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(sock)
	must(t, unix.Bind(sock, &unix.SockaddrUnix{Name: filepath.Join(dir, "s")}))
	buf := make([]byte, 8)
	read := func(n string) error { return second(s.Read(MustName(n), buf)) }
	wantErr(t, read("s"), ErrType, unix.ENXIO)
	wantErr(t, s.Write(MustName("s"), buf), ErrType, unix.ENXIO)
	wantErr(t, read("d"), ErrType)
	wantErr(t, s.Write(MustName("d"), buf), ErrType, unix.EISDIR)
	wantErr(t, second(s.Sub(MustRel("f"))), ErrType, unix.ENOTDIR)
	wantErr(t, second(s.Sub(MustRel("f/x"))), unix.ENOTDIR)
	wantErr(t, read("l"), ErrEscape)
	wantErr(t, read("dangling"), ErrEscape)
	wantErr(t, second(s.Sub(MustRel("dangling/x"))), ErrEscape)
	wantErr(t, read("missing"), unix.ENOENT)
	wantErr(t, s.Write(MustName("missing"), buf), unix.ENOENT)
	r, _ := root(t, "dir d", "file f x")
	wantErr(t, second(r.Resolve(inRoot(t, "d"), KindReg)), ErrType)
	wantErr(t, second(r.Resolve(inRoot(t, "f"), KindDir)), ErrType)
	wantErr(t, second(r.ReadHead(inRoot(t, "d"), buf)), ErrType)
}

// A24: a lease makes an open fail with EAGAIN. That must not become a loop.
func TestALeasedFileIsNotRetried(t *testing.T) {
	s, dir := stateDir(t, "file f x")
	holder, err := unix.Open(filepath.Join(dir, "f"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(holder)
	if _, err := unix.FcntlInt(uintptr(holder), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("no leases on this filesystem: fcntl: %v", err)
	}
	calls := 0
	mu := gate(t, func(int, int) verdict { calls++; return pass }, unix.SYS_OPENAT2)
	err = s.Write(MustName("f"), []byte("y"))
	wantErr(t, err, unix.EAGAIN)
	mu.Lock()
	defer mu.Unlock()
	if calls != 1 {
		t.Errorf("%d opens", calls)
	}
}

// T43: content that never ends is cut, not read.
func TestReadHeadIsBounded(t *testing.T) {
	d, dir := root(t, "file small abc")
	must(t, os.Truncate(filepath.Join(dir, "small"), 4<<30))
	buf := make([]byte, 1<<16)
	n, err := d.ReadHead(inRoot(t, "small"), buf)
	if n != len(buf) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	s, sdir := stateDir(t, "file big x")
	must(t, os.Truncate(filepath.Join(sdir, "big"), 4<<30))
	_, err = s.ReadFile(MustName("big"), 1<<20)
	wantErr(t, err, ErrTooBig)
}
