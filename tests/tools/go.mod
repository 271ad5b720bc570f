// The tools that tests, lint and benchmarks use, and their versions. build.sh
// reads this file; go.sum holds it to what was first seen. Nothing here is part
// of what ships, and no package is built inside this module: each tool is built
// from its own module with its own go.mod, as its authors release it. That is
// why there are no Go files, and why `go mod tidy` must not run here.
module github.com/ibex-run/ibex/tests/tools

go 1.26.6

require (
	github.com/containerd/containerd/v2 v2.4.2
	github.com/golangci/golangci-lint/v2 v2.15.0
	github.com/opencontainers/runc v1.5.3
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da
	golang.org/x/vuln v1.9.0
	sigs.k8s.io/cri-tools v1.37.0
)
