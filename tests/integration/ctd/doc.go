// Package ctd runs a private containerd with a small image for tests and
// benchmarks, and talks to shims directly.
package ctd
