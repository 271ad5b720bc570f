package container

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// nested reports whether the kernel refused to give birth to a process in the
// container's cgroup because the container has made groups of its own below it:
// a group whose controllers are enabled for its children takes no process
// (cgroup-v2.rst, "No Internal Process Constraint").
func nested(err error, at *exec.Place) bool {
	return at.CgroupInto >= 0 && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP))
}

// initsGroup opens the cgroup of version 2 that the first process has moved to.
// The container chose it, so it counts only if it lies below the container's own.
func (c *Container) initsGroup() (*pathsafe.Dir, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	f, err := h.proc.Pid(c.initFD, c.init.PID(), pathsafe.MustRel("cgroup"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var buf [16 << 10]byte
	n, err := f.ReadAt0(buf[:])
	if err != nil {
		return nil, err
	}
	p, err := cgroups.ParsePath(c.rec.CgroupsPath, c.opts.ID)
	if err != nil {
		return nil, err
	}
	own := "/" + p.Rel().String() + "/"
	for line := range strings.Lines(string(buf[:n])) {
		at, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		if !strings.HasPrefix(at, own) {
			return nil, fmt.Errorf("the first process is in cgroup %q, not below the container's", at)
		}
		rel, err := pathsafe.ParseRel(at[1:])
		if err != nil {
			return nil, err
		}
		return h.layout.Unified.Sub(rel)
	}
	return nil, errors.New("the first process is in no cgroup of version 2")
}
