package pathsafe

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// A29.
func TestMkdirOfWhatIsThere(t *testing.T) {
	host := decoy(t)
	s, _ := stateDir(t, "dir d", "file f x", "link l "+host)
	d, created, err := s.Mkdir(MustName("d"), 0o700)
	must(t, err)
	must(t, d.Close())
	if created {
		t.Error("an existing directory was created")
	}
	_, created, err = s.Mkdir(MustName("f"), 0o700)
	wantErr(t, err, ErrType)
	if created {
		t.Error("a file was created")
	}
	_, created, err = s.Mkdir(MustName("l"), 0o700)
	wantErr(t, err, ErrEscape)
	if created {
		t.Error("a link was created")
	}
}

// A41.
func TestAStateDirectoryThatOthersMayChangeIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(string) error{
		"group writable": func(d string) error { return os.Chmod(d, 0o770) },
		"world writable": func(d string) error { return os.Chmod(d, 0o1707) },
		"owner":          func(d string) error { return os.Chown(d, 1000, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := stateDir(t, "dir d", "file f x")
			sub, err := s.Sub(MustRel("d"))
			must(t, err)
			defer sub.Close()
			must(t, spoil(dir))
			buf := make([]byte, 8)
			wantErr(t, second(s.Sub(MustRel("d"))), ErrType)
			wantErr(t, second(s.Create(MustName("new"), 0o600)), ErrType)
			wantErr(t, s.WriteFileAtomic(MustName("f"), buf, 0o600), ErrType)
			wantErr(t, third(s.Mkdir(MustName("new"), 0o700)), ErrType)
			wantErr(t, third(s.MkdirAll(MustRel("d/e"), 0o700)), ErrType)
			wantErr(t, second(s.Read(MustName("f"), buf)), ErrType)
			wantErr(t, s.Write(MustName("f"), buf), ErrType)
			wantErr(t, s.Unlink(MustName("f")), ErrType)
			wantErr(t, second(s.List(10)), ErrType)
			wantErr(t, second(OpenState(dir)), ErrType)
			if e, _ := os.ReadDir(dir); len(e) != 2 {
				t.Errorf("entries: %v", e)
			}
			must(t, os.Chown(dir, 0, 0))
			must(t, os.Chmod(dir, 0o700))
			must(t, spoil(filepath.Join(dir, "d")))
			wantErr(t, second(s.Sub(MustRel("d"))), ErrType)
			wantErr(t, third(s.Mkdir(MustName("d"), 0o700)), ErrType)
		})
	}
}

// A42.
func TestStateFilesReplaceLinksAndDoNotFollowThem(t *testing.T) {
	host := decoy(t)
	s, dir := stateDir(t, "link soft "+host+"/secret", "file own x")
	must(t, os.Link(host+"/x/f", filepath.Join(dir, "hard")))
	for _, n := range []string{"soft", "hard", "own"} {
		_, err := s.Create(MustName(n), 0o600)
		wantErr(t, err, unix.EEXIST)
		must(t, s.WriteFileAtomic(MustName(n), []byte("new"), 0o640))
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(dir, n), &st))
		if st.Mode != unix.S_IFREG|0o640 || st.Nlink != 1 {
			t.Errorf("%s: mode %o, %d links", n, st.Mode, st.Nlink)
		}
		if got, err := s.ReadFile(MustName(n), 100); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", n, got, err)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "hard"))) // the decoy's link count
	if e, _ := os.ReadDir(dir); len(e) != 2 {
		t.Errorf("left behind: %v", e)
	}
	old := unix.Umask(0o077)
	f, err := s.Create(MustName("new"), 0o644)
	unix.Umask(old)
	must(t, err)
	must(t, second(f.Write([]byte("12"))))
	must(t, f.Close())
	fi, err := os.Stat(filepath.Join(dir, "new"))
	if err != nil || fi.Mode().Perm() != 0o644 || fi.Size() != 2 {
		t.Errorf("%v, %v", fi, err)
	}
}

// A43: none of the above counts on the sysctls that protect links. The suite
// shows it where they are off; they are the host's and are not changed here.
func TestLinkProtectionsAreNotCountedOn(t *testing.T) {
	for _, name := range []string{"protected_symlinks", "protected_hardlinks"} {
		t.Run(name, func(t *testing.T) {
			v, err := os.ReadFile("/proc/sys/fs/" + name)
			if err != nil || string(v) != "0\n" {
				t.Skipf("fs.%s is %q on this host", name, v)
			}
			// The one case that they would hide: a link of another user's in a
			// sticky directory that all may write to.
			dir := tempDir(t)
			must(t, os.Chmod(dir, 0o1777))
			host := decoy(t)
			plant(t, dir, "link l "+host)
			must(t, os.Lchown(dir+"/l", 1000, 1000))
			escapesByString(t, dir+"/l/secret")
			_, err = OpenState(dir + "/l")
			wantErr(t, err, ErrEscape)
			_, err = OpenRootfs(dir + "/l/sub")
			wantErr(t, err, ErrEscape)
		})
	}
}

// A reader of a file that is replaced over and over sees whole contents only.
func TestWriteFileAtomicIsAtomic(t *testing.T) {
	s, _ := stateDir(t)
	old, new := []byte(strings.Repeat("a", 5000)), []byte(strings.Repeat("b", 7000))
	must(t, s.WriteFileAtomic(MustName("f"), old, 0o600))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if err := s.WriteFileAtomic(MustName("f"), [][]byte{old, new}[i%2], 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 500 {
		got, err := s.ReadFile(MustName("f"), 1<<20)
		if err != nil || string(got) != string(old) && string(got) != string(new) {
			t.Errorf("%d bytes, %v", len(got), err)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}
