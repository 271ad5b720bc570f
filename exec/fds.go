package exec

import (
	"math"
	"slices"

	"github.com/ibex-run/ibex/exec/plan"
)

// keepOnly adds the steps that close every inherited descriptor but 0, 1, 2 and
// keep: one close_range for each gap (close_range(2), Linux 5.9). O_CLOEXEC
// alone would leave them open until execve, which for a created container may
// be hours away: other containers' pipes would not see their end.
func keepOnly(b *plan.Builder, keep []int) {
	slices.Sort(keep)
	next := uint(3)
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

// stdio adds the steps that put the three descriptors at 0, 1 and 2. The
// sources are above 2 (see Start), so none is overwritten before it is used.
func stdio(b *plan.Builder, fds [3]int) {
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		b.Dup3(plan.Num(fds[i], name), i, 0)
	}
}
