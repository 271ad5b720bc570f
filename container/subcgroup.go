package container

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// SetCgroup puts an exec into cgroups below the container's instead of into
// those themselves: a path for each controller, on cgroup v1 also "name=NAME";
// the key "" stands for all. A path without a leading slash means the same; "/"
// is the container's own. The cgroups must exist. Valid before Start.
func (p *Process) SetCgroup(below map[string]string) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if s := p.Status(); p.id == "" || s != Created {
		return &StateError{"choose the cgroup of", s}
	}
	dirs := p.c.group.MountDirs()
	for controller, path := range below {
		rel := strings.Trim(path, "/")
		if slices.Contains(strings.Split(rel, "/"), "..") {
			return invalid("cgroup", "%q: bad sub cgroup path", path)
		}
		found := false
		for _, d := range dirs {
			if controller != "" && d.Name != "" && d.Name != controller && !slices.Contains(d.Links, controller) {
				continue
			}
			found = true
			if rel == "" {
				continue
			}
			fd, err := openBelow(d.FD, rel)
			if err != nil {
				return fmt.Errorf("adding pid of the new process to cgroup %s:%s: %w", d.Name, path, err)
			}
			p.below = append(p.below, belowDir{d.FD, fd})
		}
		if !found {
			return invalid("cgroup", "unknown controller %q", controller)
		}
	}
	return nil
}

// belowDir is a cgroup that takes the place of one of the container's.
type belowDir struct {
	of  int // borrowed from the group
	dir *pathsafe.Dir
}

func openBelow(fd int, path string) (*pathsafe.Dir, error) {
	rel, err := pathsafe.ParseRel(path)
	if err != nil {
		return nil, err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	root, err := pathsafe.NewRootfs(dup)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.Sub(rel)
}

// useBelow changes the place of a start to the cgroups that SetCgroup chose.
func (p *Process) useBelow(at *exec.Place) {
	at.CgroupTasks = slices.Clone(at.CgroupTasks)
	for _, b := range p.below {
		if at.CgroupInto == b.of {
			at.CgroupInto = b.dir.FD()
		}
		for i, fd := range at.CgroupTasks {
			if fd == b.of {
				at.CgroupTasks[i] = b.dir.FD()
			}
		}
	}
}

func (p *Process) closeBelow() {
	for _, b := range p.below {
		b.dir.Close()
	}
	p.below = nil
}
