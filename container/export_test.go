package container

import (
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/nodeconf"
)

// UseNodeConfig makes path the node's configuration until the result is called.
func UseNodeConfig(path string) (restore func()) {
	old := nodeConfig
	nodeConfig = nodeconf.Open(path, exec.CapBit)
	return func() { nodeConfig = old }
}
