package pathsafe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A32, I11.
func TestARemovedCgroupIsGoneAlsoWhenItsNameIsBack(t *testing.T) {
	for _, controller := range []string{"pids", "unified"} {
		t.Run(controller, func(t *testing.T) {
			h, _ := hierarchy(t, controller)
			g, n := group(t, h)
			f, err := g.OpenRead(MustName("cgroup.procs"))
			must(t, err)
			defer f.Close()
			_, err = g.Read(MustName("no.such.file"), nil)
			wantErr(t, err, unix.ENOENT)
			if errors.Is(err, ErrGone) {
				t.Error("a missing file of a live cgroup is taken for a removed cgroup")
			}
			must(t, h.Rmdir(n))
			for range 2 {
				buf := make([]byte, 8)
				wantErr(t, second(g.Read(cgroupProcs, buf)), ErrGone, unix.ENOENT)
				wantErr(t, second(g.OpenRead(cgroupProcs)), ErrGone)
				wantErr(t, g.Write(cgroupProcs, []byte("0")), ErrGone)
				wantErr(t, second(g.Sub(MustRel("x"))), ErrGone)
				wantErr(t, third(g.Mkdir(MustName("x"), 0o755)), ErrGone)
				wantErr(t, second(f.ReadAt0(buf)), ErrGone, unix.ENODEV)
				again, _, err := h.Mkdir(n, 0o755) // the same name
				must(t, err)
				must(t, again.Close())
			}
		})
	}
}

// A34.
func TestRemoveCgroupTree(t *testing.T) {
	h, at := hierarchy(t, "pids")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	missing := MustName(groupPrefix + "missing")
	must(t, h.RemoveCgroupTree(ctx, missing))
	wantErr(t, h.RemoveCgroupTree(ctx, MustName("cgroup.procs")), unix.ENOTDIR)

	t.Run("wide and nested", func(t *testing.T) {
		g, n := group(t, h)
		for i := range 300 {
			sub, _, err := g.MkdirAll(MustRel("c"+strconv.Itoa(i)+"/x"), 0o755)
			must(t, err)
			must(t, sub.Close())
		}
		must(t, os.Mkdir(filepath.Join(at, n.String(), "ctl\x01name"), 0o755)) // a tenant may
		must(t, h.RemoveCgroupTree(ctx, n))
		if _, err := os.Stat(filepath.Join(at, n.String())); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	})
	t.Run("deep", func(t *testing.T) {
		g, n := group(t, h)
		cur := g
		for range 200 {
			next, _, err := cur.Mkdir(MustName("d"), 0o755)
			must(t, err)
			if cur != g {
				must(t, cur.Close())
			}
			cur = next
		}
		must(t, cur.Close())
		must(t, h.RemoveCgroupTree(ctx, n))
	})
	t.Run("busy until killed", func(t *testing.T) {
		g, n := group(t, h)
		sub, _, err := g.Mkdir(MustName("sub"), 0o755)
		must(t, err)
		defer sub.Close()
		cmd := exec.Command("/bin/sleep", "60")
		must(t, cmd.Start())
		must(t, sub.Write(cgroupProcs, []byte(strconv.Itoa(cmd.Process.Pid))))
		short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		err = h.RemoveCgroupTree(short, n)
		cancel()
		wantErr(t, err, unix.EBUSY, context.DeadlineExceeded)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		must(t, h.RemoveCgroupTree(ctx, n))
		wg.Wait()
	})
	t.Run("a child made meanwhile", func(t *testing.T) {
		g, n := group(t, h)
		made := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 50 {
				if sub, _, err := g.Mkdir(MustName("n"+strconv.Itoa(i)), 0o755); err == nil {
					_ = sub.Close()
				}
				if i == 10 {
					close(made)
				}
			}
		})
		<-made
		must(t, h.RemoveCgroupTree(ctx, n))
		wg.Wait()
	})
	t.Run("only cgroup trees", func(t *testing.T) {
		s, _ := stateDir(t, "dir d/e")
		wantErr(t, s.RemoveCgroupTree(ctx, MustName("d")), ErrPolicy)
	})
}

// A34, the bounds, without making 65,536 cgroups.
func TestRemoveCgroupTreeIsBounded(t *testing.T) {
	h, _ := hierarchy(t, "pids")
	g, n := group(t, h)
	for i := range 5 {
		sub, _, err := g.Mkdir(MustName("c"+strconv.Itoa(i)), 0o755)
		must(t, err)
		must(t, sub.Close())
	}
	w := remover{ctx: context.Background(), left: 3}
	wantErr(t, w.remove(h, h.FD(), n, 0), ErrTooMany)
	w = remover{ctx: context.Background(), left: 100}
	wantErr(t, w.remove(h, h.FD(), n, maxCgroupDepth+1), ErrTooMany)
	// What is below a mount is not the subtree's.
	must(t, w.remove(h, h.FD(), n, maxCgroupDepth-1))
}

// A34: it does not go through a mount either.
func TestRemoveCgroupTreeNeverLeavesTheTree(t *testing.T) {
	privateMounts(t)
	h, at := hierarchy(t, "pids")
	victim, vn := group(t, h)
	inner, _, err := victim.Mkdir(MustName("inner"), 0o755)
	must(t, err)
	defer inner.Close()
	g, n := group(t, h)
	sub, _, err := g.Mkdir(MustName("sub"), 0o755)
	must(t, err)
	defer sub.Close()
	over := filepath.Join(at, n.String(), "sub")
	bind(t, filepath.Join(at, vn.String()), over)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := h.RemoveCgroupTree(ctx, n); err == nil {
		t.Error("removed a cgroup that is mounted over")
	}
	if _, err := os.Stat(filepath.Join(at, vn.String(), "inner")); err != nil {
		t.Errorf("victim: %v", err)
	}
	must(t, unix.Unmount(over, unix.MNT_DETACH))
}

// A tenant's cgroup whose name ParseName refuses can be reached all the same.
func TestACgroupWithAStrangeNameCanBeReached(t *testing.T) {
	h, at := hierarchy(t, "pids")
	g, n := group(t, h)
	must(t, os.Mkdir(filepath.Join(at, n.String(), "a\x01\x7f b"), 0o755))
	entries, err := g.List(1000)
	must(t, err)
	found := false
	for _, e := range entries {
		if e.Type != unix.DT_DIR {
			continue
		}
		name, err := e.Component()
		must(t, err)
		sub, err := g.Sub(name.Rel())
		must(t, err)
		must(t, sub.Write(MustName("pids.max"), []byte("1")))
		must(t, sub.Close())
		found = true
	}
	if !found {
		t.Error("not listed")
	}
	for _, bad := range []string{"", ".", "..", "a/b", "/", "a\x00", strings.Repeat("a", 256)} {
		_, err := DirEnt{Name: bad}.Component()
		wantErr(t, err, unix.EINVAL)
	}
}
