package integration

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cookie is the core-scheduling cookie of a process, 0 for none.
func cookie(pid int) (v uint64, err error) {
	_, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid),
		unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&v)), 0)
	if e != 0 {
		err = e
	}
	return v, err
}

func TestCoreSchedulingIsForTheShimAndItsContainersOrAnError(t *testing.T) {
	t.Parallel()
	d := ownDaemonOf(t, binDir, "SCHED_CORE=1")
	if _, err := cookie(0); err != nil {
		// EINVAL: without CONFIG_SCHED_CORE. ENODEV: without threads that share a core.
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
			t.Fatal(err)
		}
		b := newBox(t, boxSpec{daemon: d})
		wantError(t, b.tryCreate(), nil, "core")
		return
	}
	b := startBox(t, boxSpec{daemon: d})
	of := func(pid int) uint64 {
		t.Helper()
		v, err := cookie(pid)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	shim, own := of(b.shimPID), of(d.PID())
	if shim == 0 || shim == own || of(b.pid()) != shim {
		t.Errorf("cookies: shim %x, container %x, containerd %x", shim, of(b.pid()), own)
	}
	b.stop()
}
