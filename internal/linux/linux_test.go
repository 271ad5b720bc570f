package linux

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCString(t *testing.T) {
	c, ok := NewCString("abc")
	if !ok || !c.Valid() || c.String() != "abc" || *c.Data() != 'a' {
		t.Errorf("%q", c)
	}
	if _, ok := NewCString("a\x00b"); ok {
		t.Error("NUL accepted")
	}
	for _, bad := range []CString{"", "abc"} {
		if bad.Valid() || bad.Data() != nil {
			t.Errorf("%q is valid", bad)
		}
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
		if _, errno := Openat2(unix.AT_FDCWD, bad, &how); errno != unix.EINVAL {
			t.Errorf("openat2 of %q: %v", bad, errno)
		}
		if _, errno := Openat(unix.AT_FDCWD, bad, unix.O_PATH); errno != unix.EINVAL {
			t.Errorf("openat of %q: %v", bad, errno)
		}
	}
}

func TestOpenatMakesNothing(t *testing.T) {
	c, _ := NewCString(t.TempDir() + "/new")
	for _, flags := range []int{unix.O_CREAT | unix.O_WRONLY, unix.O_TMPFILE | unix.O_WRONLY} {
		if _, errno := Openat(-1, c, flags); errno != unix.EINVAL {
			t.Errorf("flags %#x: %v", flags, errno)
		}
	}
	if _, err := os.Stat(c.String()); err == nil {
		t.Error("made it")
	}
}

func TestParseDirents(t *testing.T) {
	d, err := os.Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	buf := make([]byte, 1<<15)
	n, err := unix.Getdents(int(d.Fd()), buf)
	if err != nil {
		t.Fatal(err)
	}
	add := func(acc map[string]uint8, _ uint64, typ uint8, name string) map[string]uint8 {
		acc[name] = typ
		return acc
	}
	got, ok := ParseDirents(map[string]uint8{}, buf[:n], add)
	if !ok || got["status"] != unix.DT_REG || got["fd"] != unix.DT_DIR || got["exe"] != unix.DT_LNK {
		t.Errorf("%v %v", ok, got)
	}
	for cut := 1; cut < 40; cut++ {
		if _, ok := ParseDirents(map[string]uint8{}, buf[:cut], add); ok && cut != int(buf[16]) {
			t.Errorf("%d bytes taken for whole records", cut)
		}
	}
}

func FuzzParseDirents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x04a\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, buf []byte) {
		n, _ := ParseDirents(0, buf, func(n int, _ uint64, _ uint8, name string) int {
			if len(name) > len(buf) {
				t.Fatal("name out of the buffer")
			}
			return n + 1
		})
		if n*19 > len(buf) {
			t.Fatalf("%d records in %d bytes", n, len(buf))
		}
	})
}
