package container

import (
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/nodeconf"
)

// NodeConfigPath is where the node's configuration is.
const NodeConfigPath = nodeconf.Path

// NodeConfig is the node's configuration in force. With an error that is what was
// in force before the file became what it is, which may be nothing.
func NodeConfig() (nodeconf.Config, error) { return nodeConfig.Get() }

// CheckNodeConfig reads a file as the node's configuration and changes nothing:
// whose it is, where it lies and what it says.
func CheckNodeConfig(path string) (nodeconf.Config, error) {
	return nodeconf.Open(path, exec.CapBit).Get()
}

// CapNames lists the capabilities of a mask.
func CapNames(mask uint64) string { return exec.CapSetString(mask) }
