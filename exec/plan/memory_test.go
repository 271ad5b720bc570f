package plan

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// secret is in the heap of this process, and no constant of its program.
func secret() []byte { return []byte(strings.Repeat(fmt.Sprintf("%x", os.Getpid()*7919), 4)) }

// The heap of a shim holds the environment of every container of its pod. What
// can read a child of its before execve must not find it there.
func TestTheHeapIsNotCopiedToTheChild(t *testing.T) {
	s := secret()
	if !found(t, "/proc/self/", s) {
		t.Fatal("the search does not find what is there")
	}
	hold(t, 0, func(*Builder, FD) {}, func(_ int, proc string, _ [][]byte) {
		if found(t, proc, s) {
			t.Error("the child has a copy of the heap")
		}
	})
}

// What is not in the child is not copied, cannot be read there, and costs nothing.
func TestTheChildHasTheProgramAndThePlan(t *testing.T) {
	if cgo {
		t.Skip("built with cgo: the child needs the memory of the C library, too (leftOut)")
	}
	hold(t, 0, func(*Builder, FD) {}, func(_ int, proc string, _ [][]byte) {
		maps, err := os.ReadFile(proc + "maps")
		if err != nil {
			t.Fatal(err)
		}
		writable := 0
		for line := range strings.Lines(string(maps)) {
			if f := strings.Fields(line); f[1][1] == 'w' {
				writable++
			} else if len(f) > 5 && !strings.HasPrefix(f[5], "[v") && f[1] != "r-xp" {
				t.Errorf("mapped in the child: %s", line)
			}
		}
		if writable != 1 {
			t.Errorf("%d writable mappings in the child, not the plan's alone:\n%s", writable, maps)
		}
	})
}

// found searches the writable memory of a process.
func found(t *testing.T, proc string, what []byte) bool {
	t.Helper()
	maps, err := os.ReadFile(proc + "maps")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(proc + "mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	buf := make([]byte, 1<<20)
	defer clear(buf) // a copy that the next search would find
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var perm string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); err != nil || !strings.HasPrefix(perm, "rw") || to-from > 256<<20 {
			continue
		}
		// Pieces overlap, so that none is cut.
		for at := from; at < to; at += uint64(len(buf) - len(what)) {
			n, _ := mem.ReadAt(buf[:min(uint64(len(buf)), to-at)], int64(at)) // a hole ends it
			if bytes.Contains(buf[:n], what) {
				return true
			}
		}
	}
	return false
}

func TestAClosedPlanCannotBeForked(t *testing.T) {
	b := NewBuilder()
	b.Exit(0)
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	if _, _, err := p.Fork(ForkOptions{CgroupFD: -1, Sock: -1}); err == nil {
		t.Error("it ran")
	}
}

// A closed plan's slices serve the next one. Nothing of the first may show there,
// nor stay where the garbage collector does not clear it.
func TestNothingOfAClosedPlanStays(t *testing.T) {
	build := func(env string) *Plan {
		b := NewBuilder()
		b.Execve("/bin/true", []string{"true"}, []string{env})
		p, err := b.Plan()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	secret := "SECRET=" + strings.Repeat("x", 100)
	first := build(secret)
	data := first.data[:cap(first.data)]
	if !bytes.Contains(data, []byte(secret)) {
		t.Fatal("the environment is somewhere else")
	}
	first.Close()
	if bytes.Contains(data, []byte("SECRET")) {
		t.Error("the environment stays")
	}
	if first.Len() != 0 {
		t.Errorf("a closed plan is\n%s", first)
	}
	for range 3 {
		p := build("A=b")
		want := build("A=b").String()
		if got := p.String(); got != want || strings.Contains(got, "SECRET") {
			t.Errorf("plan after another:\n%s\nwant\n%s", got, want)
		}
		p.Close()
	}
}
