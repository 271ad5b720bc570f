package container

import (
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/cgroups/systemd"
	cgroup2 "github.com/ibex-run/ibex/cgroups/v2"
	"github.com/ibex-run/ibex/pathsafe"
)

// delegationAnnotation lets a container manage cgroups of its own: its processes
// start in a group below the container's, and that one is its root's. It needs
// cgroup v2, a cgroup namespace and a writable cgroup mount. It widens nothing:
// the limits of the container's own group stay out of reach.
const delegationAnnotation = "io.ibex.cgroup-delegation"

// delegation tells whether the spec asks for it, and refuses where it cannot be.
func delegation(s *specs.Spec) (bool, error) {
	v, ok := s.Annotations[delegationAnnotation]
	if !ok || v == "false" {
		return false, nil
	}
	field := "annotations (" + delegationAnnotation + ")"
	if v != "true" {
		return false, invalid(field, "%q: want \"true\" or \"false\"", v)
	}
	h, err := host()
	if err != nil {
		return false, err
	}
	writable := slices.ContainsFunc(s.Mounts, func(m specs.Mount) bool {
		return (m.Type == "cgroup" || m.Type == "cgroup2") && !slices.Contains(m.Options, "ro")
	})
	switch {
	case h.layout.Mode != cgroups.V2:
		return false, fmt.Errorf("%s: needs cgroup v2: %w", field, ErrUnsupported)
	case !isNew(s, specs.CgroupNamespace):
		return false, invalid(field, "needs a new cgroup namespace")
	case !writable:
		return false, invalid(field, "needs a writable mount of type cgroup")
	}
	return true, nil
}

// delegate prepares the container's cgroup for it.
func (c *Container) delegate() error {
	want, err := delegation(c.spec)
	if err != nil || !want {
		return err
	}
	g := c.group
	if s, ok := g.(*systemd.Group); ok {
		inner, ok := s.Inner.(*cgroup2.Group)
		if !ok {
			return fmt.Errorf("delegate: a scope of %T: %w", s.Inner, ErrUnsupported)
		}
		g = inner
	}
	v2, ok := g.(*cgroup2.Group)
	if !ok {
		return fmt.Errorf("delegate: a cgroup of %T: %w", g, ErrUnsupported)
	}
	uid, okU := c.ids().HostUID(0)
	gid, okG := c.ids().HostGID(0)
	if !okU || !okG {
		return invalid("linux.uidMappings, linux.gidMappings", "the container has no root to delegate its cgroup to")
	}
	c.delegated, err = v2.Delegate(uid, gid)
	return err
}

// into is where processes of the container are born on cgroup v2: below its own
// group if that is delegated.
func (c *Container) into() int {
	if c.delegated != nil {
		return c.delegated.FD()
	}
	return c.group.IntoFD()
}

// moveBelow is where the first process goes once its cgroup namespace is made,
// whose root is the container's own group.
func (c *Container) moveBelow() []int {
	if c.delegated != nil {
		return []int{c.delegated.FD()}
	}
	return nil
}

// reopenBelow finds the group of a container that was taken up.
func (c *Container) reopenBelow(h *hostState, p cgroups.Path) error {
	want, err := delegation(c.spec)
	if err != nil || !want {
		return err
	}
	rel, err := pathsafe.ParseRel(p.Rel().String() + "/init")
	if err != nil {
		return err
	}
	c.delegated, err = h.layout.Unified.Sub(rel)
	return err
}
