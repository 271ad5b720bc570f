package exec

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
)

// Describe compiles s as Run does and starts nothing. The plan is for reading:
// the descriptors that only it needs are closed.
func Describe(s *Start) (*plan.Plan, error) {
	described, own := *s, *s.Process
	own.Extra = slices.Clone(own.Extra)
	described.Process = &own
	// It stands for the child's end of the handshake, whose number is its own too.
	sock, err := unix.FcntlInt(uintptr(s.Place.Proc), unix.F_DUPFD_CLOEXEC, own.first())
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	defer unix.Close(sock)
	extra, err := aboveStdio(&own, &sock)
	defer closeAll(extra)
	if err != nil {
		return nil, err
	}
	return compile(&described, sock)
}
