package ima

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A container whose root is read-only and has one layer can be given that layer
// itself: no container start pays for a hash.
func TestNewReadOnlyBindMountOfALayerCostsNoHash(t *testing.T) {
	l := setUp(t)
	run(t, program(t, filepath.Join(l.dir, "layer", "bin")))
	least := time.Hour
	for range 3 {
		point, unmount := l.bind(t, filepath.Join(l.dir, "layer"))
		least = min(least, run(t, filepath.Join(point, "bin")))
		unmount()
	}
	l.expect(t, "first exec after each new read-only bind mount", least, false)
}

// Each overlay has inodes of its own, and IMA remembers by inode.
func TestEveryNewOverlayCostsAHash(t *testing.T) {
	l := setUp(t)
	lower := filepath.Join(l.dir, "lower")
	run(t, program(t, filepath.Join(lower, "bin")))
	for _, upper := range []bool{false, true} {
		second := filepath.Join(l.dir, "empty")
		if err := os.MkdirAll(second, 0o755); err != nil {
			t.Fatal(err)
		}
		least := time.Hour
		for range 3 {
			point, unmount := l.overlay(t, upper, lower, second)
			least = min(least, run(t, filepath.Join(point, "bin")))
			unmount()
		}
		what := "first exec after each new overlay without an upper layer"
		if upper {
			what = "first exec after each new overlay with an upper layer"
		}
		l.expect(t, what, least, true)
	}
}

// Linux 6.5 (and 6.1.y with it) made IMA forget an overlay's inode at each use,
// "ovl: Always reevaluate the file signature for IMA"; 6.7 compares the change
// counter of the file below instead.
func TestLaterExecsFromAnOverlayAreHashedByOldKernelsOnly(t *testing.T) {
	l := setUp(t)
	lower := filepath.Join(l.dir, "lower")
	program(t, filepath.Join(lower, "bin"))
	point, _ := l.overlay(t, true, lower)
	p := filepath.Join(point, "bin")
	run(t, p)
	l.expect(t, "later exec, file in the lower layer", fastest(t, p), olderThan(t, 6, 7))
	p = program(t, filepath.Join(point, "new"))
	run(t, p)
	l.expect(t, "later exec, file in the upper layer", fastest(t, p), olderThan(t, 6, 7))
}

// EROFS has no change counter, so an overlay above it is hashed at every exec,
// while EROFS by itself is not.
func TestErofsIsHashedAtEveryExecUnderAnOverlayOnly(t *testing.T) {
	l := setUp(t)
	program(t, filepath.Join(l.dir, "layer", "bin"))
	layer := l.erofs(t, filepath.Join(l.dir, "layer"))
	p := filepath.Join(layer, "bin")
	run(t, p)
	l.expect(t, "later exec from EROFS", fastest(t, p), false)

	point, unmount := l.bind(t, layer)
	l.expect(t, "first exec from a read-only bind mount of EROFS", run(t, filepath.Join(point, "bin")), false)
	unmount()

	point, _ = l.overlay(t, true, layer)
	p = filepath.Join(point, "bin")
	run(t, p)
	l.expect(t, "later exec from an overlay over EROFS", fastest(t, p), true)
}

// What is not hashed again must still be measured again once it has changed.
func TestAChangedProgramIsMeasuredAgain(t *testing.T) {
	l := setUp(t)
	lower := filepath.Join(l.dir, "lower")
	below := program(t, filepath.Join(lower, "bin"))
	bound, _ := l.bind(t, lower)
	merged, _ := l.overlay(t, true, lower)
	for _, place := range []struct{ name, path string }{
		{"itself", below},
		{"a read-only bind mount", filepath.Join(bound, "bin")},
		{"an overlay", filepath.Join(merged, "bin")},
	} {
		run(t, place.path)
		before := measurements(t)
		run(t, place.path)
		if n := measurements(t); n != before {
			t.Errorf("%s: %d measurements of an unchanged file", place.name, n-before)
		}
		f, err := os.OpenFile(below, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		run(t, place.path)
		if n := measurements(t); n <= before {
			t.Errorf("%s: the change was not noticed", place.name)
		}
	}
}
