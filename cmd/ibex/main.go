// Command ibex runs and shows containers without a daemon. Its OCI verbs are
// those of other runtimes, flag for flag, so that Docker, Podman and nerdctl
// can use it.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

func main() {
	o := &options{}
	if err := root(o).Execute(); err != nil {
		var e exitError
		if !errors.As(err, &e) {
			o.logger.fail(explain(err))
		}
		os.Exit(exitCode(err))
	}
}

// explain adds what to do next to an error of the command line itself.
func explain(err error) error {
	if verb, ok := strings.CutPrefix(err.Error(), "unknown command "); ok {
		verb, _, _ = strings.Cut(verb, " for ")
		return fmt.Errorf("No help topic for '%s': there is no such verb; see ibex --help", strings.Trim(verb, `"`)) //nolint:staticcheck // the words that callers of OCI runtimes know
	}
	return err
}
