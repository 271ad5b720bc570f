// Command ibex runs and shows containers without a daemon. Its OCI verbs are
// those of other runtimes, flag for flag, so that Docker, Podman and nerdctl
// can use it.
package main

import (
	"errors"
	"os"
)

func main() {
	o := &options{}
	if err := root(o).Execute(); err != nil {
		var e exitError
		if !errors.As(err, &e) {
			o.logger.fail(err)
		}
		os.Exit(exitCode(err))
	}
}
