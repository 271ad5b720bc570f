// Command ibex runs and shows containers without a daemon. Its OCI verbs are
// those of other runtimes, flag for flag, so that Docker, Podman and nerdctl
// can use it.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	cmd := root()
	if err := cmd.Execute(); err != nil {
		var e exitError
		if !errors.As(err, &e) {
			fmt.Fprintln(os.Stderr, "ibex:", err)
		}
		os.Exit(exitCode(err))
	}
}
