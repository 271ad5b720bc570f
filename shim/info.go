package shim

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

// RuntimeName is the name under which containerd knows this runtime.
const RuntimeName = "io.containerd.ibex.v1"

// Version and Revision are set by the build, with -ldflags -X.
var (
	Version  = "devel"
	Revision = "unknown"
)

// featuresURL is the type of the OCI features document, as containerd registers
// it (core/runtime/typeurl.go).
const featuresURL = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// info answers -info: who we are and what we support. containerd asks this for
// each container that wants an idmapped mount, so it forks nothing.
func info(stdin io.Reader, stdout io.Writer) error {
	input, err := io.ReadAll(io.LimitReader(stdin, maxInput))
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	ri := &wire.RuntimeInfo{
		Name:    RuntimeName,
		Version: &wire.RuntimeVersion{Version: Version, Revision: Revision},
	}
	if len(input) > 0 {
		ri.Options = &wire.Any{}
		if err := wire.Unmarshal(input, ri.Options); err != nil {
			return fmt.Errorf("decode runtime options: %w", err)
		}
		if _, err := parseOptions(ri.Options); err != nil {
			return err
		}
	}
	doc, err := json.Marshal(container.Features())
	if err != nil {
		return fmt.Errorf("encode features: %w", err)
	}
	ri.Features = &wire.Any{TypeURL: featuresURL, Value: doc}
	_, err = stdout.Write(wire.Marshal(ri))
	return err
}

func version(name string, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s:\n  Version:  %s\n  Revision: %s\n  Go version: %s\n\n", name, Version, Revision, runtime.Version())
	return err
}
