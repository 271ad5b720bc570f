package shim

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// scheduleApart gives this process a core-scheduling cookie, if containerd asks
// for it (sched_core in its configuration). The server and all containers inherit
// it: they share the threads of a core with each other and nobody else
// (Documentation/admin-guide/hw-vuln/core-scheduling.rst; Linux 5.14). A kernel
// that cannot do it is an error for whoever started the container: the isolation
// that was asked for would be missing.
func scheduleApart() error {
	if os.Getenv(envSchedCore) == "" {
		return nil
	}
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, unix.PR_SCHED_CORE_SCOPE_PROCESS_GROUP, 0)
	if err != nil {
		return fmt.Errorf("core scheduling (%s): %w", envSchedCore, os.NewSyscallError("prctl(PR_SCHED_CORE)", err))
	}
	return nil
}
