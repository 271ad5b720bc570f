package pathsafe

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSmoke(t *testing.T) {
	if f, err := Probe(); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("%+v", f)
	}
	mi, err := MountInfo()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mi {
		if m.FSType != "cgroup" && m.FSType != "cgroup2" {
			continue
		}
		d, err := OpenHierarchy(m)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v %+v", d, d.ID())
		if m.SuperOptions == "rw,pids" {
			sub, from, err := d.MkdirAll(MustRel("ibex-test-smoke/a/b"), 0o755)
			if err != nil || from != 0 {
				t.Fatal(from, err)
			}
			if err := sub.Write(MustName("pids.max"), []byte("5")); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 64)
			n, err := sub.Read(MustName("pids.max"), buf)
			if err != nil || string(buf[:n]) != "5\n" {
				t.Fatal(n, err)
			}
			l, err := sub.List(100)
			t.Log(l, err)
			if err := d.RemoveCgroupTree(context.Background(), MustName("ibex-test-smoke")); err != nil {
				t.Fatal(err)
			}
			_, err = sub.Read(MustName("pids.max"), buf)
			if !errors.Is(err, ErrGone) || !errors.Is(err, unix.ENOENT) {
				t.Fatal(err)
			}
			t.Log(err)
		}
		d.Close()
	}
}
