// The shim sets its own GOMAXPROCS. Left to itself the Go runtime would open,
// keep and poll the CPU limit files of its cgroup.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command containerd-shim-ibex-v1 is the ibex shim. containerd starts it as
// io.containerd.ibex.v1; nobody else needs to.
package main

import (
	"os"

	"github.com/ibex-run/ibex/shim"
)

func main() {
	os.Exit(shim.Run(os.Args))
}
