package shim

import (
	"fmt"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/nodeconf"
)

// fillFrom gives each option that the caller left out the node's value.
func (o *options) fillFrom(n nodeconf.Options) {
	o.NoNewKeyring = o.NoNewKeyring || n.NoNewKeyring
	o.ExecTreeKill = o.ExecTreeKill || n.ExecTreeKill
	if o.ShimCgroup == "" {
		o.ShimCgroup = n.ShimCgroup
	}
	if o.IoUid == 0 {
		o.IoUid = n.IoUid
	}
	if o.IoGid == 0 {
		o.IoGid = n.IoGid
	}
	if o.LogOverflow == "" {
		o.LogOverflow = n.LogOverflow
	}
	if o.LogSpool == 0 {
		o.LogSpool = n.LogSpool
	}
}

// check refuses values that mean nothing.
func (o *options) check() error {
	if o.NoPivotRoot {
		return fmt.Errorf("runtime option NoPivotRoot: a container that keeps the host's mounts reachable is not supported: %w", errInvalid)
	}
	if err := nodeconf.CheckOverflow(o.LogOverflow); err != nil {
		return fmt.Errorf("runtime option LogOverflow: %w: %w", err, errInvalid)
	}
	if err := nodeconf.CheckSpool(o.LogSpool); err != nil {
		return fmt.Errorf("runtime option LogSpool: %w: %w", err, errInvalid)
	}
	return nil
}

// nodeConfig is for the start of a shim, which has no earlier configuration to go
// on with: a file that says something unknown is an error. A running shim keeps
// what it had.
func nodeConfig() (nodeconf.Config, error) {
	c, err := container.NodeConfig()
	if err != nil {
		return c, fmt.Errorf("the node's configuration: %w", err)
	}
	return c, nil
}
