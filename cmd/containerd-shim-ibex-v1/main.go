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
