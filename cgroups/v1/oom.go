package cgroup1

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

var (
	oomControl   = pathsafe.MustName("memory.oom_control")
	eventControl = pathsafe.MustName("cgroup.event_control")
)

// oomFiles is what OOM notification holds. open tells whether event is a
// descriptor.
type oomFiles struct {
	event   int
	open    bool
	control *pathsafe.File
}

func (o *oomFiles) close() {
	if o.open {
		_ = unix.Close(o.event)
		o.open = false
	}
	if o.control != nil {
		_ = o.control.Close()
		o.control = nil
	}
}

// OOMFD gives a descriptor that is readable (POLLIN) after the group ran out of
// memory, by its own limit or by that of a group above it, and after it was
// removed. It stays the group's. OOMKills makes it unreadable again and tells
// how many processes were killed. It may tell of none yet: the kernel notifies
// before it kills, so the exits are the moment to look again.
//
// Documentation/admin-guide/cgroup-v1/memory.rst, "OOM Control".
func (g *Group) OOMFD() (int, error) {
	g.oomMu.Lock()
	defer g.oomMu.Unlock()
	if g.oom.open {
		return g.oom.event, nil
	}
	if err := g.openOOM(); err != nil {
		return -1, fmt.Errorf("watch for OOM in cgroup %s: %w", g.path, err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("watch for OOM in cgroup %s: eventfd2: %w", g.path, err)
	}
	line := strconv.Itoa(event) + " " + strconv.Itoa(g.oom.control.FD())
	if err := g.member("memory").dir.Write(eventControl, []byte(line)); err != nil {
		_ = unix.Close(event)
		return -1, fmt.Errorf("watch for OOM in cgroup %s: %w", g.path, err)
	}
	g.oom.event, g.oom.open = event, true
	return event, nil
}

// atLimit is how near the highest usage of a group that ran out of memory is to
// its limit, in bytes. Charges come in batches of 64 pages (MEMCG_CHARGE_BATCH,
// include/linux/memcontrol.h).
const atLimit = 64 * 4096

// OOMCause gives the path of the lowest group that has used all of its memory:
// this one or one above it. It is empty if none has, which means that the host
// ran out of memory. Version 1 does not tell whose limit a kill was for; this is
// for a log, and no proof.
func (g *Group) OOMCause() (string, error) {
	m := g.member("memory")
	if m == nil {
		return "", nil
	}
	for at := g.path.Rel().String(); at != "."; at = path.Dir(at) {
		rel, err := pathsafe.ParseRel(at)
		if err != nil {
			return "", err
		}
		dir, err := m.Dir.Sub(rel)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("find the cause of an OOM kill in cgroup %s: %w", g.path, err)
		}
		full := exhausted(dir, "memory.") || exhausted(dir, "memory.memsw.")
		_ = dir.Close()
		if full {
			return "/" + at, nil
		}
	}
	return "", nil
}

// exhausted reports whether the counter with the prefix has been at its limit. A
// counter that cannot be read has not.
func exhausted(dir *pathsafe.Dir, prefix string) bool {
	var values [2]uint64
	for i, file := range []string{"limit_in_bytes", "max_usage_in_bytes"} {
		var buf [64]byte
		n, err := dir.Read(pathsafe.MustName(prefix+file), buf[:])
		v, ok := scan.Uint(scan.Trim(buf[:n]))
		if err != nil || !ok {
			return false
		}
		values[i] = v
	}
	return values[1]+atLimit >= values[0]
}

// openOOM opens memory.oom_control.
func (g *Group) openOOM() error {
	if g.oom.control != nil {
		return nil
	}
	m := g.member("memory")
	if m == nil {
		return fmt.Errorf("memory: %w", cgroups.ErrNoController)
	}
	f, err := m.dir.OpenRead(oomControl)
	if err != nil {
		return g.fileError("open", "memory.oom_control", err)
	}
	g.oom.control = f
	return nil
}

// OOMKills gives the number of processes of this very group that the OOM killer
// killed. It also resets the descriptor of OOMFD, before it reads, so that a
// kill during the call is not missed.
func (g *Group) OOMKills() (uint64, error) {
	g.oomMu.Lock()
	defer g.oomMu.Unlock()
	if g.oom.open {
		var count [8]byte
		if _, err := unix.Read(g.oom.event, count[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
			return 0, fmt.Errorf("read eventfd of cgroup %s: %w", g.path, err)
		}
	}
	if err := g.openOOM(); err != nil {
		return 0, err
	}
	var buf [256]byte
	n, err := g.oom.control.ReadAt0(buf[:])
	if err != nil {
		return 0, g.fileError("read", "memory.oom_control", err)
	}
	var s cgroups.OOMControl
	if err := parseOOMControl(&s, buf[:n]); err != nil {
		return 0, g.fileError("parse", "memory.oom_control", err)
	}
	return s.Kill, nil
}

// parseOOMControl fills s from the text of memory.oom_control. The line oom_kill
// is there since Linux 4.13, commit 8e675f7af507.
func parseOOMControl(s *cgroups.OOMControl, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "oom_kill_disable":
			s.KillDisable = v
		case "under_oom":
			s.UnderOOM = v
		case "oom_kill":
			s.Kill = v
		}
	})
}
