package container

import "github.com/ibex-run/ibex/internal/nodeconf"

// NodeConfig is the node's configuration in force. With an error that is what was
// in force before the file became what it is, which may be nothing.
func NodeConfig() (nodeconf.Config, error) { return nodeConfig.Get() }
