package cgroup2

import (
	"fmt"
	"strconv"

	"github.com/ibex-run/ibex/pathsafe"
)

var procsFile = pathsafe.MustName("cgroup.procs")

// Add moves a process into the group. A pids limit does not stand in the way: it
// limits forks, not migration (cgroup-v2.rst, "PID"). The caller knows that pid
// cannot have been used again, as the parent of an unreaped child does.
func (g *Group) Add(pid int) error {
	if err := g.dir.Write(procsFile, []byte(strconv.Itoa(pid))); err != nil {
		return fmt.Errorf("add a process to cgroup %s: %w", g.path, err)
	}
	return nil
}
