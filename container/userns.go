package container

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// mapLines is the most lines that the kernel takes: UID_GID_MAP_MAX_EXTENTS,
// user_namespaces(7), Linux 4.15.
const mapLines = 340

// validateMappings checks linux.uidMappings and gidMappings and the namespace
// they are for.
func validateMappings(s *specs.Spec) error {
	ns, has := namespace(s, specs.UserNamespace)
	l := s.Linux
	if !has {
		if len(l.UIDMappings) > 0 || len(l.GIDMappings) > 0 {
			return invalid("linux.uidMappings, linux.gidMappings", "there is no user namespace")
		}
		return nil
	}
	if ns.Path != "" && len(l.UIDMappings) == 0 && len(l.GIDMappings) == 0 {
		return nil // those that it has, see inheritMappings
	}
	if len(l.UIDMappings) == 0 || len(l.GIDMappings) == 0 {
		return invalid("linux.uidMappings, linux.gidMappings", "required with a new user namespace")
	}
	if err := checkMap("linux.uidMappings", l.UIDMappings); err != nil {
		return err
	}
	return checkMap("linux.gidMappings", l.GIDMappings)
}

func checkMap(field string, m []specs.LinuxIDMapping) error {
	if len(m) > mapLines {
		return invalid(field, "%d entries, the kernel takes %d", len(m), mapLines)
	}
	for i, a := range m {
		if a.Size == 0 || a.ContainerID+a.Size < a.ContainerID || a.HostID+a.Size < a.HostID {
			return invalid(fmt.Sprintf("%s[%d]", field, i), "size %d: empty, or beyond the last id", a.Size)
		}
		for j, b := range m[:i] {
			if overlap(a.ContainerID, b.ContainerID, a.Size, b.Size) || overlap(a.HostID, b.HostID, a.Size, b.Size) {
				return invalid(fmt.Sprintf("%s[%d]", field, i), "overlaps with entry %d", j)
			}
		}
	}
	return nil
}

func overlap(a, b, sizeA, sizeB uint32) bool { return a < b+sizeB && b < a+sizeA }

// mapText is the content of a uid_map or gid_map file.
func mapText(m []specs.LinuxIDMapping) []byte {
	var b strings.Builder
	for _, e := range m {
		fmt.Fprintf(&b, "%d %d %d\n", e.ContainerID, e.HostID, e.Size)
	}
	return []byte(b.String())
}

// newUserNS makes a user namespace that nobody is in: a helper makes it, its
// maps are written from here, where they may name any id, and the descriptor
// keeps it.
func newUserNS(uid, gid []specs.LinuxIDMapping) (fd int, err error) {
	h, err := host()
	if err != nil {
		return -1, err
	}
	fd = -1
	err = exec.InHelper(context.Background(), nil, func(b *plan.Builder) {
		b.Unshare(unix.CLONE_NEWUSER)
	}, func(pid, pidfd int) (err error) {
		if err := h.proc.WritePid(pidfd, pid, pathsafe.MustRel("uid_map"), mapText(uid)); err != nil {
			return err
		}
		if err := h.proc.WritePid(pidfd, pid, pathsafe.MustRel("gid_map"), mapText(gid)); err != nil {
			return err
		}
		fd, err = h.proc.NS(pidfd, pid, "user")
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("make a user namespace: %w", err)
	}
	return fd, nil
}

// inheritMappings completes a spec that joins a user namespace and does not repeat
// its maps: a helper enters it, and its maps are read from here, as they look from
// here.
func inheritMappings(ctx context.Context, h *hostState, s *specs.Spec) error {
	ns, ok := namespace(s, specs.UserNamespace)
	if !ok || ns.Path == "" || len(s.Linux.UIDMappings) > 0 {
		return nil
	}
	fd, err := pathsafe.OpenNamespace(ns.Path, unix.CLONE_NEWUSER)
	if err != nil {
		return fmt.Errorf("linux.namespaces (user): %w", err)
	}
	defer unix.Close(fd)
	if own, err := isOwn(fd, "user"); err != nil || own {
		return errors.Join(err, invalid("linux.namespaces (user)", "the namespace joined by path is the host's"))
	}
	err = exec.InHelper(ctx, []int{fd}, func(b *plan.Builder) {
		b.Setns(plan.Num(fd, "user"), unix.CLONE_NEWUSER)
	}, func(pid, pidfd int) error {
		for _, m := range []struct {
			file string
			to   *[]specs.LinuxIDMapping
		}{{"uid_map", &s.Linux.UIDMappings}, {"gid_map", &s.Linux.GIDMappings}} {
			f, err := h.proc.Pid(pidfd, pid, pathsafe.MustRel(m.file))
			if err != nil {
				return err
			}
			buf := make([]byte, mapLines*40)
			n, err := f.ReadAt0(buf)
			f.Close()
			if err != nil {
				return err
			}
			if *m.to, err = parseMap(string(buf[:n])); err != nil {
				return fmt.Errorf("%s: %w", m.file, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("linux.namespaces (user): read the mappings of %s: %w", ns.Path, err)
	}
	return nil
}

// parseMap parses a uid_map or gid_map file, user_namespaces(7).
func parseMap(text string) (m []specs.LinuxIDMapping, err error) {
	for line := range strings.Lines(text) {
		var e specs.LinuxIDMapping
		if _, err := fmt.Sscan(line, &e.ContainerID, &e.HostID, &e.Size); err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		m = append(m, e)
	}
	if len(m) == 0 {
		return nil, errors.New("nothing is mapped")
	}
	return m, nil
}

// newTimeNS makes a time namespace with its offsets set, owned by the user
// namespace user (-1: the host's). Offsets cannot be changed once somebody is in
// it (time_namespaces(7)), so this comes before the container.
func newTimeNS(offsets map[string]specs.LinuxTimeOffset, user int) (fd int, err error) {
	h, err := host()
	if err != nil {
		return -1, err
	}
	fd = -1
	var keep []int
	if user >= 0 {
		keep = append(keep, user)
	}
	err = exec.InHelper(context.Background(), keep, func(b *plan.Builder) {
		if user >= 0 {
			b.Setns(plan.Num(user, "user"), unix.CLONE_NEWUSER)
		}
		b.Unshare(unix.CLONE_NEWTIME)
	}, func(pid, pidfd int) (err error) {
		if text := offsetText(offsets); len(text) > 0 {
			if err := h.proc.WritePid(pidfd, pid, pathsafe.MustRel("timens_offsets"), text); err != nil {
				return err
			}
		}
		fd, err = h.proc.NS(pidfd, pid, "time_for_children")
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("make a time namespace: %w", err)
	}
	return fd, nil
}

func offsetText(offsets map[string]specs.LinuxTimeOffset) []byte {
	var b strings.Builder
	for _, clock := range []string{"monotonic", "boottime"} {
		if o, ok := offsets[clock]; ok {
			fmt.Fprintf(&b, "%s %d %d\n", clock, o.Secs, o.Nanosecs)
		}
	}
	return []byte(b.String())
}

func validateTime(s *specs.Spec) error {
	for clock := range s.Linux.TimeOffsets {
		if clock != "monotonic" && clock != "boottime" {
			return invalid("linux.timeOffsets", "unknown clock %q", clock)
		}
	}
	if n, ok := namespace(s, specs.TimeNamespace); len(s.Linux.TimeOffsets) > 0 && (!ok || n.Path != "") {
		return invalid("linux.timeOffsets", "needs a new time namespace")
	}
	return nil
}

// errUnmapped: an id that the container's user namespace does not have.
var errUnmapped = errors.New("not mapped in the container's user namespace")

// ids are the container's mappings; empty without a user namespace.
func (c *Container) ids() rootfs.IDs {
	if !private(c.spec, specs.UserNamespace) {
		return rootfs.IDs{}
	}
	return rootfs.IDs{UID: c.spec.Linux.UIDMappings, GID: c.spec.Linux.GIDMappings}
}

// checkMapped makes sure that a process's ids exist where it runs.
func (c *Container) checkMapped(p *exec.Process) error {
	m := c.ids()
	if _, ok := m.HostUID(p.UID); !ok {
		return fmt.Errorf("process.user.uid %d: %w: %w", p.UID, errUnmapped, ErrInvalid)
	}
	for _, gid := range append([]uint32{p.GID}, p.Groups...) {
		if _, ok := m.HostGID(gid); !ok {
			return fmt.Errorf("process.user gid %d: %w: %w", gid, errUnmapped, ErrInvalid)
		}
	}
	return nil
}
