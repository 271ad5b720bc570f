package cgroup2

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// cause tells which limit an OOM kill was for, by a counter that a group and each
// group above it have. It opens the files anew at every call: they are read after
// a kill, and not otherwise.
//
// memory.events.local: Linux 5.2, commit 1e577f970f66. Its counter oom is that of
// the group whose limit it was, while oom_kill is that of the victim.
type cause struct {
	root  *pathsafe.Dir
	paths []string // from the group upwards, without the root, which has no limit
	last  []uint64
}

var memoryEventsLocal = pathsafe.MustName("memory.events.local")

// newCause remembers the counters of the group at rel and of those above it.
func newCause(root *pathsafe.Dir, rel pathsafe.Rel) (*cause, error) {
	c := &cause{root: root}
	for at := rel.String(); at != "."; at = path.Dir(at) {
		c.paths = append(c.paths, at)
	}
	c.last = make([]uint64, len(c.paths))
	_, err := c.grown()
	return c, err
}

// grown gives the lowest group whose counter has grown since the last call, and
// "" if none has: then it was not a limit, but the host that ran out of memory.
// A group without the counter, or one that is gone, has not grown.
func (c *cause) grown() (string, error) {
	found := ""
	for i, at := range c.paths {
		n, err := c.read(at)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return found, err
		}
		if n > c.last[i] && found == "" {
			found = "/" + at
		}
		c.last[i] = n
	}
	return found, nil
}

func (c *cause) read(at string) (uint64, error) {
	rel, err := pathsafe.ParseRel(at)
	if err != nil {
		return 0, err
	}
	dir, err := c.root.Sub(rel)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var buf [512]byte
	n, err := dir.Read(memoryEventsLocal, buf[:])
	if err != nil {
		return 0, err
	}
	var e cgroups.MemoryEvents
	err = parseMemoryEvents(&e, buf[:n])
	return e.OOM, err
}
