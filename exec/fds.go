package exec

import (
	"fmt"
	"math"
	"slices"

	"github.com/ibex-run/ibex/exec/plan"
)

// keepOnly adds the steps that close every inherited descriptor from first up
// but keep: one close_range for each gap (close_range(2), Linux 5.9). O_CLOEXEC
// alone would leave them open until execve, which for a created container may
// be hours away: other containers' pipes would not see their end.
func keepOnly(b *plan.Builder, first int, keep []int) {
	slices.Sort(keep)
	next := uint(first)
	for _, fd := range keep {
		if fd < 3 || uint(fd) < next {
			continue
		}
		if uint(fd) > next {
			b.CloseRange(next, uint(fd)-1)
		}
		next = uint(fd) + 1
	}
	b.CloseRange(next, math.MaxUint32)
}

// stdio adds the steps that put the process's own descriptors at 0, 1, 2 and up.
// The sources are above all of them (see aboveStdio), so none is overwritten
// before it is used.
func stdio(b *plan.Builder, p *Process) {
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		b.Dup3(plan.Num(p.Stdio[i], name), i, 0)
	}
	for i, fd := range p.Extra {
		b.Dup3(plan.Num(fd, "extra"), 3+i, 0)
	}
}

// checkExtra refuses a start that needs a descriptor of its own where an extra
// one goes. Whoever passes descriptors on has them at these very numbers, from
// the start of the program: nothing else is there then.
func (s *Start) checkExtra(sock int) error {
	if len(s.Process.Extra) == 0 {
		return nil
	}
	for _, fd := range s.descriptors(sock) {
		if fd < s.Process.first() {
			return fmt.Errorf("extra descriptors: number %d is in use", fd)
		}
	}
	return nil
}
