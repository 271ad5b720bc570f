package cgroup1

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/pathsafe"
)

func TestALeafIsKilledAndTheGroupLivesOn(t *testing.T) {
	name := pathsafe.MustName("leaf")
	for _, unified := range []bool{true, false} {
		where := map[bool]string{true: "unified", false: "freezer"}[unified]
		t.Run(where, func(t *testing.T) {
			g := create(t, nil)
			at := &Group{path: g.path, members: g.members, unified: g.unified}
			if !unified {
				at.unified = nil
			} else if g.unified == nil {
				t.Skip("this host has no unified hierarchy")
			}
			l, err := at.Leaf(name)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := at.Leaf(name); !errors.Is(err, unix.EEXIST) {
				t.Errorf("a second leaf of that name: %v", err)
			}
			stays := start(t, g, "sleep", "1000")
			dies := start(t, g, "sleep", "1000")
			if err := l.Add(dies.Process.Pid); err != nil {
				t.Fatal(err)
			}
			if busy, err := l.Busy(); !busy || err != nil {
				t.Errorf("busy: %v %v", busy, err)
			}
			if err := l.Kill(within(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := dies.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the process in the leaf: %v", err)
			}
			if !ktest.Alive(stays.Process.Pid) {
				t.Error("the kill reached the group above")
			}
			if err := l.Remove(within(t, 5*time.Second)); err != nil {
				t.Error(err)
			}
			for _, m := range ktest.CgroupMounts() {
				if _, err := os.Stat(filepath.Join(m.Dir, g.path.Rel().String(), "leaf")); err == nil {
					t.Errorf("%s: the leaf is there still", m.Dir)
				}
			}
			if err := l.Remove(within(t, time.Second)); err != nil {
				t.Errorf("remove what is not there: %v", err)
			}
		})
	}
}

func TestALeafNeedsAHierarchyInWhichItCanBeKilled(t *testing.T) {
	g := create(t, nil)
	bare := Group{path: g.path}
	if _, err := bare.Leaf(pathsafe.MustName("leaf")); !errors.Is(err, cgroups.ErrNoController) {
		t.Errorf("%v", err)
	}
}
