package cgroup2

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/scan"
	"github.com/ibex-run/ibex/pathsafe"
)

var memoryEvents = pathsafe.MustName("memory.events")

// oomFiles is what OOM notification holds.
type oomFiles struct {
	events *pathsafe.File
	epoll  int
	open   bool // epoll is a descriptor
	cause  *cause
}

func (o *oomFiles) close() {
	if o.open {
		_ = unix.Close(o.epoll)
		o.open = false
	}
	if o.events != nil {
		_ = o.events.Close()
		o.events = nil
	}
	o.cause = nil
}

// OOMFD gives a descriptor that is readable (POLLIN) when memory.events has
// changed since OOMKills was last called, for whatever reason and also by a
// limit of a group above, and after the group was removed. It stays the group's.
// It is there to be polled and not to be read: OOMKills makes it unreadable
// again.
//
// It is an epoll instance that waits for POLLPRI on memory.events. inotify would
// tell the same, but wants a path, and a path can lead elsewhere.
func (g *Group) OOMFD() (int, error) {
	g.oomMu.Lock()
	defer g.oomMu.Unlock()
	if g.oom.open {
		return g.oom.epoll, nil
	}
	// The first reading arms the poll: what has happened so far is in it.
	if _, err := g.oomKills(); err != nil {
		return -1, fmt.Errorf("watch for OOM in cgroup %s: %w", g.path, err)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("watch for OOM in cgroup %s: epoll_create1: %w", g.path, err)
	}
	event := unix.EpollEvent{Events: unix.EPOLLPRI, Fd: int32(g.oom.events.FD())}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, g.oom.events.FD(), &event); err != nil {
		_ = unix.Close(epoll)
		return -1, fmt.Errorf("watch for OOM in cgroup %s: epoll_ctl: %w", g.path, err)
	}
	g.oom.epoll, g.oom.open = epoll, true
	// Without it only the log is poorer.
	g.oom.cause, _ = newCause(g.root, g.path.Rel())
	return epoll, nil
}

// OOMCause gives the path of the group that ran out of memory under its own limit
// since OOMFD or the last OOMCause: this one or one above it. It is empty if none
// did, which means that the host ran out of memory.
func (g *Group) OOMCause() (string, error) {
	g.oomMu.Lock()
	defer g.oomMu.Unlock()
	if g.oom.cause == nil {
		return "", nil
	}
	at, err := g.oom.cause.grown()
	if err != nil {
		return "", fmt.Errorf("find the cause of an OOM kill in cgroup %s: %w", g.path, err)
	}
	return at, nil
}

// OOMKills gives the number of processes of the group and below it that any OOM
// killer killed. It also resets the descriptor of OOMFD.
func (g *Group) OOMKills() (uint64, error) {
	g.oomMu.Lock()
	defer g.oomMu.Unlock()
	return g.oomKills()
}

func (g *Group) oomKills() (uint64, error) {
	if g.oom.events == nil {
		f, err := g.dir.OpenRead(memoryEvents)
		if err != nil {
			return 0, g.fileError("open", "memory.events", err)
		}
		g.oom.events = f
	}
	var buf [512]byte
	n, err := g.oom.events.ReadAt0(buf[:])
	if err != nil {
		return 0, g.fileError("read", "memory.events", err)
	}
	var e cgroups.MemoryEvents
	if err := parseMemoryEvents(&e, buf[:n]); err != nil {
		return 0, g.fileError("parse", "memory.events", err)
	}
	return e.OOMKill, nil
}

// parseMemoryEvents fills e from memory.events - cgroup-v2.rst.
func parseMemoryEvents(e *cgroups.MemoryEvents, text []byte) error {
	return scan.EachKey(text, func(key []byte, v uint64) {
		switch string(key) {
		case "low":
			e.Low = v
		case "high":
			e.High = v
		case "max":
			e.Max = v
		case "oom":
			e.OOM = v
		case "oom_kill":
			e.OOMKill = v
		case "oom_group_kill":
			e.OOMGroupKill = v
		}
	})
}
