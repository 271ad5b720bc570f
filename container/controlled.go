package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/nodeconf"
)

// nodeConfig is the node's configuration, read again when it changes.
var nodeConfig = nodeconf.Open(nodeconf.Path, exec.CapBit)

// control takes from every set what the node lets no controlled container have.
// It comes before anything else is worked out, at create and at every exec, and
// costs nothing later: the kernel denies what is in no set and, since the
// bounding set is one of them, not to be had by any program either.
//
// A process may still make a user namespace of its own, below the container's,
// and has every capability in that one; it reaches only what belongs to it
// (user_namespaces(7)). The sysctl user.max_user_namespaces or a seccomp profile
// takes that away.
func (c *Container) control(caps exec.Caps) exec.Caps {
	conf, err := nodeConfig.Get()
	c.warn(err)
	if conf.ControlledCaps == nil || !conf.ControlAll && !private(c.spec, specs.UserNamespace) {
		return caps
	}
	mask := *conf.ControlledCaps
	out := caps.And(mask)
	if out != caps {
		gone := (caps.Bounding | caps.Permitted | caps.Inheritable) &^ mask
		c.warn(fmt.Errorf("controlled_userns_caps of the node removes %s", exec.CapSetString(gone)))
	}
	return out
}
