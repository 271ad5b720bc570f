package cgroup1

import (
	"strconv"

	"github.com/ibex-run/ibex/pathsafe"
)

var procsFile = pathsafe.MustName("cgroup.procs")

// Add moves a process into the group, in every hierarchy. A pids limit does not
// stand in the way: it limits forks, not migration (pids.rst). The caller knows
// that pid cannot have been used again, as the parent of an unreaped child does.
func (g *Group) Add(pid int) error {
	text := []byte(strconv.Itoa(pid))
	for _, m := range g.all() {
		if err := m.dir.Write(procsFile, text); err != nil {
			return g.fileError("write", procsFile.String(), err)
		}
	}
	return nil
}
