package pathsafe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A01: a component that is now a directory and now a link to the host.
func TestSubWithALinkSwappedIn(t *testing.T) {
	host := decoy(t)
	s, dir := stateDir(t, "dir a", "link b "+host)
	real, bad := inode(t, filepath.Join(dir, "a")), inode(t, host)
	fd := dirfd(t, dir)
	storm(t, func(int) { exchange(fd, "a", "b") })
	var ok, refused, escaped int
	n := budget(func(int) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, "a"), &st) == nil && st.Ino == bad {
			escaped++ // the control: by path
		}
		d, err := s.Sub(MustRel("a"))
		switch {
		case err == nil:
			ok++
			if d.ID().Ino != real {
				t.Fatalf("opened inode %d, the real one is %d", d.ID().Ino, real)
			}
			_ = d.Close()
		case errors.Is(err, ErrEscape):
			refused++
		default:
			t.Fatal(err)
		}
	})
	t.Logf("%d tries: %d opened, %d refused; by path %d escaped", n, ok, refused, escaped)
	if ok == 0 || refused == 0 || escaped == 0 {
		t.Error("the race was not run")
	}
}

// A02: the same in the middle of a path that is written to.
func TestWriteWithALinkSwappedIn(t *testing.T) {
	host := decoy(t) // has x/f
	s, dir := stateDir(t, "file a/x/f 0", "link b "+host)
	fd := dirfd(t, dir)
	storm(t, func(int) { exchange(fd, "a", "b") })
	wrote := 0
	budget(func(int) {
		d, err := s.Sub(MustRel("a/x"))
		if err != nil {
			wantErr(t, err, ErrEscape)
			return
		}
		defer d.Close()
		must(t, d.Write(MustName("f"), []byte("1")))
		wrote++
	})
	if wrote == 0 {
		t.Error("the race was not run")
	}
}

// A03, CVE-2021-30465: a component in a shared volume that is now a directory
// and now a link upwards.
func TestResolveStaysInTheRoot(t *testing.T) {
	host := decoy(t, "dir b/c")
	r, dir := root(t, "dir a/b/c", "link evil ../../../../.."+host, "link evil2 ../../..", "dir vol/v")
	inside := map[uint64]bool{}
	must(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		inside[inode(t, p+"/.")] = true
		return err
	}))
	bad := inode(t, filepath.Join(host, "b/c"))
	fd := dirfd(t, dir)
	storm(t, func(i int) { exchange(fd, "a", []string{"evil", "evil2"}[i%2]) })
	var ok, no, escaped int
	budget(func(int) {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(dir, "a/b/c"), &st) == nil && st.Ino == bad {
			escaped++
		}
		for _, path := range []string{"a/b/c", "a/../a/b"} {
			target, err := r.Resolve(inRoot(t, path), KindDir)
			if err != nil {
				if !errors.Is(err, unix.ENOENT) && !errors.Is(err, ErrRaced) {
					t.Fatal(err)
				}
				no++
				continue
			}
			ok++
			if id := target.ID(); id.Dev != r.ID().Dev || !id.SameMount(r.ID()) || !inside[id.Ino] {
				t.Fatalf("%s is outside: %+v", path, id)
			}
			_ = target.Close()
		}
	})
	t.Logf("%d inside, %d refused; by path %d escaped", ok, no, escaped)
	if ok == 0 || no == 0 {
		t.Error("the race was not run")
	}
}

// CVE-2024-45310: nothing is made outside while parents are swapped.
func TestMkTargetMakesNothingOutside(t *testing.T) {
	host := decoy(t) // sub is what a string join would make things in
	r, dir := root(t, "dir vol/sub", "link vol/evil ../../../../../.."+host+"/sub", "link evil2 /")
	fd := dirfd(t, filepath.Join(dir, "vol"))
	storm(t, func(int) { exchange(fd, "sub", "evil") })
	made := 0
	budget(func(i int) {
		kind := []Kind{KindDir, KindReg}[i%2]
		target, err := r.MkTarget(inRoot(t, "vol/sub/new"+string(rune('a'+i%8))+"/deep/x"), kind, 0o755)
		if err != nil {
			if !errors.Is(err, ErrRaced) && !errors.Is(err, ErrEscape) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, ErrType) {
				t.Fatal(err)
			}
			return
		}
		made++
		if !target.ID().SameMount(r.ID()) {
			t.Fatal("outside")
		}
		_ = target.Close()
		if i%64 == 0 {
			_ = os.RemoveAll(filepath.Join(dir, "vol/sub/newa"))
		}
	})
	if made == 0 {
		t.Error("the race was not run")
	}
}

// A27: renames anywhere make a lookup through ".." fail. It ends in time.
func TestARenameStormDoesNotHoldUpALookup(t *testing.T) {
	r, dir := root(t, "dir a", "dir s/x")
	fd := dirfd(t, filepath.Join(dir, "s"))
	storm(t, func(int) {
		_ = unix.Renameat(fd, "x", fd, "y")
		_ = unix.Renameat(fd, "y", fd, "x")
	})
	path := inRoot(t, strings.Repeat("a/../", 100)+"a")
	raced := 0
	n := budget(func(int) {
		target, err := r.Resolve(path, KindDir)
		if errors.Is(err, ErrRaced) {
			wantErr(t, err, unix.EAGAIN)
			raced++
			return
		}
		must(t, err)
		_ = target.Close()
	})
	t.Logf("%d of %d raced", raced, n)
}

// A28, a directory that is replaced between its making and its opening.
func TestMkdirReplacedByALink(t *testing.T) {
	host := decoy(t)
	s, dir := stateDir(t)
	gate(t, func(_ int, nr int) verdict {
		if nr == unix.SYS_OPENAT2 && unix.Rmdir(filepath.Join(dir, "d")) == nil {
			_ = unix.Symlink(host, filepath.Join(dir, "d"))
		}
		return pass
	}, unix.SYS_OPENAT2)
	_, created, err := s.Mkdir(MustName("d"), 0o700)
	wantErr(t, err, ErrEscape)
	if !created {
		t.Error("does not say that it made something")
	}
}

// A28, by another directory: that one is opened, and it is inside the tree.
func TestMkdirReplacedByADirectory(t *testing.T) {
	s, dir := stateDir(t, "dir other")
	want := inode(t, filepath.Join(dir, "other"))
	gate(t, func(_ int, nr int) verdict {
		_ = unix.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "d"))
		return pass
	}, unix.SYS_OPENAT2)
	d, created, err := s.Mkdir(MustName("d"), 0o700)
	must(t, err)
	defer d.Close()
	if !created || d.ID().Ino != want {
		t.Errorf("created=%v, inode %d, want %d", created, d.ID().Ino, want)
	}
}

// A28, in a root: the new directory of a target is replaced by a link.
func TestMkTargetReplacedByALink(t *testing.T) {
	host := decoy(t)
	r, dir := root(t)
	gate(t, func(int, int) verdict {
		if unix.Rmdir(filepath.Join(dir, "d")) == nil {
			_ = unix.Symlink(host, filepath.Join(dir, "d"))
		}
		return pass
	}, unix.SYS_OPENAT2)
	_, err := r.MkTarget(inRoot(t, "d/e/f"), KindDir, 0o755)
	wantErr(t, err, ErrEscape)
}

// D7 for what is made: a parent that is moved out of the root meanwhile is
// noticed.
func TestMkTargetInADirectoryThatIsMovedOut(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(map[bool]string{false: "gone", true: "replaced"}[replaced], func(t *testing.T) {
			outside := tempDir(t)
			r, dir := root(t, "dir vol")
			vol := filepath.Join(dir, "vol")
			var once sync.Once
			gate(t, func(int, int) verdict {
				once.Do(func() {
					_ = unix.Rename(vol, filepath.Join(outside, "vol"))
					if replaced {
						_ = os.MkdirAll(filepath.Join(vol, "new"), 0o755)
					}
				})
				return pass
			}, unix.SYS_MKDIRAT)
			_, err := r.MkTarget(inRoot(t, "vol/new"), KindDir, 0o755)
			wantErr(t, err, ErrRaced)
		})
	}
}

// A link that leads to nothing is gone through inside the root, and ".." in what
// does not exist makes nothing.
func TestMkTargetThroughLinksToNothing(t *testing.T) {
	host := decoy(t)
	r, dir := root(t, "link var/run /run", "link up ../../../../..", "link abs "+host+"/new", "link rel ../etc/x/../y", "link two var/run/two",
		"dir etc", "link loop1 loop2/a", "link loop2 loop1/b")
	for path, at := range map[string]string{
		"var/run/secrets/k8s": "run/secrets/k8s",
		"abs/x":               host + "/new/x",
		"two/deep":            "run/two/deep",
		"up/new":              "new",
		"a//./b/":             "a/b",
	} {
		target, err := r.MkTarget(inRoot(t, path), KindDir, 0o755)
		must(t, err)
		if want := inode(t, filepath.Join(dir, at)); target.ID().Ino != want {
			t.Errorf("%s: inode %d, %s has %d", path, target.ID().Ino, at, want)
		}
		must(t, target.Close())
	}
	before := listing(t, dir)
	for _, path := range []string{"missing/../x", "rel/z", "etc/no/../../x"} {
		_, err := r.MkTarget(inRoot(t, path), KindDir, 0o755)
		wantErr(t, err, ErrEscape)
	}
	for _, path := range []string{"loop1", "loop2/x"} {
		_, err := r.MkTarget(inRoot(t, path), KindDir, 0o755)
		wantErr(t, err, unix.ELOOP)
	}
	if after := listing(t, dir); before != after {
		t.Errorf("made something:\n%s\nwas:\n%s", after, before)
	}
}

// A30.
func TestMkdirAllWhileParentsAreRemoved(t *testing.T) {
	h, at := hierarchy(t, "pids")
	g, n := group(t, h)
	base := filepath.Join(at, n.String())
	storm(t, func(int) {
		_ = unix.Rmdir(base + "/a/b/c")
		_ = unix.Rmdir(base + "/a/b")
		_ = unix.Rmdir(base + "/a")
	})
	ok := 0
	end := time.Now().Add(time.Second)
	for i := 0; i < 1000 && time.Now().Before(end); i++ {
		d, _, err := g.MkdirAll(MustRel("a/b/c"), 0o755)
		if err == nil {
			ok++
			_ = d.Close()
		} else if !errors.Is(err, unix.ENOENT) { // ErrGone is one, too
			t.Fatal(err)
		}
	}
	if ok == 0 {
		t.Log("no try won the race")
	}
}

// A31.
func TestTwoMakeTheSameParents(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, _ := group(t, h)
	rounds := 0
	budget(func(i int) {
		if i >= 1000 {
			return
		}
		rounds++
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for k := range errs {
			wg.Go(func() {
				d, _, err := g.MkdirAll(MustRel("p/q"), 0o755)
				if err == nil {
					_ = d.Close()
				}
				errs[k] = err
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		must(t, g.RemoveCgroupTree(t.Context(), MustName("p")))
	})
	t.Logf("%d rounds", rounds)
}

// A47: no call reads or writes through a number that was closed and reused.
func TestCloseDuringUse(t *testing.T) {
	_, dir := stateDir(t, "file good/f good", "file evil/f evil")
	var stop atomic.Bool
	var evil sync.WaitGroup
	evil.Go(func() { // takes every number that becomes free
		for !stop.Load() {
			if n, err := unix.Open(filepath.Join(dir, "evil"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Close(n)
			}
		}
	})
	budget(func(i int) {
		if i >= 1500 {
			return
		}
		d, err := OpenState(filepath.Join(dir, "good"))
		must(t, err)
		f, err := d.OpenRead(MustName("f"))
		must(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				buf := make([]byte, 8)
				for {
					n, err := d.Read(MustName("f"), buf)
					if err == nil && string(buf[:n]) != "good" {
						t.Errorf("read %q through another descriptor", buf[:n])
						return
					}
					if err == nil {
						n, err = f.ReadAt0(buf)
						if err == nil && string(buf[:n]) != "good" {
							t.Errorf("read %q through another descriptor", buf[:n])
							return
						}
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("after Close: %v", err)
						}
						return
					}
				}
			})
		}
		for range 2 {
			wg.Go(func() { _ = d.Close(); _ = f.Close() })
		}
		wg.Wait()
		if d.FD() != -1 || f.FD() != -1 {
			t.Fatal("a closed Dir has a descriptor")
		}
	})
	stop.Store(true)
	evil.Wait()
}
