package cgroups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

var (
	procsFile  = pathsafe.MustName("cgroup.procs")
	killFile   = pathsafe.MustName("cgroup.kill")
	eventsFile = pathsafe.MustName("cgroup.events")
)

// maxDepth and maxEntries bound a walk: a container with a writable cgroup mount
// makes what it likes below its own group.
const (
	maxDepth   = 1024
	maxEntries = 1 << 16
)

// Walk calls f for dir and every cgroup below it, parents first. The directory
// is only valid during the call. A cgroup that vanishes meanwhile is skipped.
func Walk(dir *pathsafe.Dir, f func(dir *pathsafe.Dir) error) error {
	return walk(dir, f, 0)
}

func walk(dir *pathsafe.Dir, f func(dir *pathsafe.Dir) error, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("walk cgroups below %s: nested too deeply: %w", dir, unix.ELOOP)
	}
	if err := f(dir); err != nil {
		return err
	}
	if leaf, err := isLeaf(dir); leaf || err != nil {
		return err
	}
	entries, err := dir.List(maxEntries)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type != unix.DT_DIR {
			continue
		}
		// A tenant may have given it any name.
		name, err := e.Component()
		if err != nil {
			return err
		}
		sub, err := dir.Sub(name.Rel())
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		err = walk(sub, f, depth+1)
		_ = sub.Close()
		if err != nil && !errors.Is(err, pathsafe.ErrGone) {
			return err
		}
	}
	return nil
}

// isLeaf: the link count of a kernfs directory is that of its subdirectories
// plus two (kernfs_refresh_inode, fs/kernfs/inode.c), which saves listing the
// files of a group that has no children, the usual case.
func isLeaf(dir *pathsafe.Dir) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir.FD(), &st); err != nil {
		return false, fmt.Errorf("fstat %s: %w", dir, err)
	}
	return st.Nlink <= 2, nil
}

// Procs adds the processes of dir and of all cgroups below it to pids, and
// returns the sorted result without repetitions. Processes of other PID
// namespaces that have no number here are left out.
func Procs(dir *pathsafe.Dir, pids []int) ([]int, error) {
	buf := make([]byte, 4096)
	err := Walk(dir, func(dir *pathsafe.Dir) error {
		n, err := dir.Read(procsFile, buf)
		for errors.Is(err, pathsafe.ErrTooBig) && len(buf) < 1<<26 {
			buf = make([]byte, 4*len(buf))
			n, err = dir.Read(procsFile, buf)
		}
		if err != nil {
			// EOPNOTSUPP: a threaded cgroup of version 2 lists its processes in the
			// domain above it - cgroup-v2.rst, "cgroup.procs".
			if errors.Is(err, unix.EOPNOTSUPP) {
				return nil
			}
			return err
		}
		pids, err = parseProcs(pids, buf[:n])
		return err
	})
	if errors.Is(err, pathsafe.ErrGone) {
		err = nil // removed: nobody is in it
	}
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// parseProcs adds the numbers of cgroup.procs to pids. A 0 stands for a process
// that has no number in our PID namespace.
func parseProcs(pids []int, text []byte) ([]int, error) {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		pid, ok := scan.Uint(line)
		if !ok || pid > 1<<31-1 {
			return pids, fmt.Errorf("parse cgroup.procs: %w", scan.Unexpected(line))
		}
		if pid != 0 {
			pids = append(pids, int(pid))
		}
	}
	return pids, nil
}

// SignalProcs sends sig to every process that list gives, and returns their
// number.
//
// A number may be given to a new process between the reading and the signal.
// Therefore a descriptor of each process is opened first and the list read
// again: a process whose number is in both is the one that the descriptor
// stands for, or another of the same cgroup. What was forked meanwhile is left
// to the caller's next round.
func SignalProcs(list func() ([]int, error), sig unix.Signal) (int, error) {
	pids, err := list()
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	fds := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	var errs []error
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			fds[pid] = fd
		case !errors.Is(err, unix.ESRCH):
			errs = append(errs, fmt.Errorf("pidfd_open %d: %w", pid, err))
		}
	}
	again, err := list()
	if err != nil {
		return len(pids), err
	}
	for _, pid := range again {
		fd, ok := fds[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("pidfd_send_signal %d: %w", pid, err))
		}
	}
	return len(pids), errors.Join(errs...)
}

// KillUnified kills every process in and below a version 2 cgroup, any that is
// forked meanwhile included. It does not wait for their end. done is false if
// the kernel has no cgroup.kill for this group.
//
// cgroup.kill: Linux 5.14, commit 661ee6280931. A threaded cgroup refuses it
// with EOPNOTSUPP.
func KillUnified(dir *pathsafe.Dir) (done bool, err error) {
	err = dir.Write(killFile, []byte("1"))
	switch {
	case err == nil, errors.Is(err, pathsafe.ErrGone):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	}
	return false, err
}

// Event is a key of cgroup.events of version 2.
type Event string

// The keys of cgroup.events.
const (
	Populated Event = "populated"
	Frozen    Event = "frozen"
)

// WaitEvent waits until the event of a version 2 cgroup has the value want, or
// ctx ends. A cgroup that is gone is neither populated nor frozen.
func WaitEvent(ctx context.Context, dir *pathsafe.Dir, e Event, want bool) error {
	f, err := dir.OpenRead(eventsFile)
	if errors.Is(err, pathsafe.ErrGone) && !want {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 256)
	for {
		// The reading arms the poll: a change after it is a POLLPRI.
		n, err := f.ReadAt0(buf)
		if errors.Is(err, pathsafe.ErrGone) && !want {
			return nil
		}
		if err != nil {
			return err
		}
		if EventIs(buf[:n], e) == want {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for %s %t of %s: %w", e, want, dir, err)
		}
		// Bounded, so that a cancelled context is noticed.
		fds := []unix.PollFd{{Fd: int32(f.FD()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, pollWait(ctx)); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll cgroup.events of %s: %w", dir, err)
		}
	}
}

// pollWait is the time to the deadline of ctx in ms, from 1 to 20.
func pollWait(ctx context.Context) int {
	const most = 20
	deadline, ok := ctx.Deadline()
	if !ok {
		return most
	}
	return int(min(max(time.Until(deadline).Milliseconds(), 1), most))
}

// ReadEvent gives the present value of an event of a version 2 cgroup.
func ReadEvent(dir *pathsafe.Dir, e Event) (bool, error) {
	var buf [256]byte
	n, err := dir.Read(eventsFile, buf[:])
	return EventIs(buf[:n], e), err
}

// EventIs reports whether the text of cgroup.events has e set.
func EventIs(text []byte, e Event) bool {
	for rest := text; len(rest) > 0; {
		var line []byte
		line, rest = scan.Line(rest)
		if key, v, ok := scan.KeyUint(line); ok && string(key) == string(e) {
			return v != 0
		}
	}
	return false
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
