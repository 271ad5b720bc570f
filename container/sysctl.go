package container

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// validateSysctls refuses a value that would not be the container's own: its
// namespace must be new or joined, and not this process's.
func validateSysctls(s *specs.Spec) error {
	for key, val := range s.Linux.Sysctl {
		field := fmt.Sprintf("linux.sysctl (%s)", key)
		sc, err := pathsafe.ParseSysctl(key)
		if err != nil {
			return fmt.Errorf("%s: %w: %w", field, err, ErrInvalid)
		}
		if err := pathsafe.CheckSysctlValue(val); err != nil {
			return fmt.Errorf("%s: %w: %w", field, err, ErrInvalid)
		}
		for t, ns := range nsFlags {
			if ns.flag == sc.Namespace() && !private(s, t) {
				return invalid(field, "needs a %s namespace, it would change the host's", t)
			}
		}
	}
	return nil
}

// sysctlSteps writes the values from inside: what a file of /proc/sys means is
// decided by the writer's namespaces, not by the procfs instance. proc is a full
// instance of our own, where nothing can have been mounted over a file.
func sysctlSteps(b *plan.Builder, proc int, sysctls map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(sysctls)) {
		sc, err := pathsafe.ParseSysctl(key)
		if err != nil {
			continue // refused by validateSysctls
		}
		b.About(fmt.Sprintf("linux.sysctl (%s)", key))
		f := b.Openat2(plan.Num(proc, "procfs-full"), sc.Path().String(), unix.OpenHow{
			Flags:   unix.O_WRONLY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		})
		val := []byte(sysctls[key])
		b.Write(f.FD(), val)
		b.Want(uintptr(len(val)))
		b.Close(f.FD())
	}
	b.About("")
}
