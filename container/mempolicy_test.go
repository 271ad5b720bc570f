package container_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

func TestTheMemoryPolicyHoldsInTheContainer(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Skipf("no NUMA in this kernel: %v", err)
	}
	b := newBundle(t, "sh", "-c", "cat /proc/self/numa_maps")
	b.spec.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0", Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}}
	if out, code := b.run(); code != 0 || !strings.Contains(out, " bind=static:0 ") {
		t.Errorf("exit code %d, %.200q", code, out)
	}
}

func TestAMemoryPolicyThatMakesNoSenseIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    specs.LinuxMemoryPolicy
	}{
		{"mode", specs.LinuxMemoryPolicy{Mode: "INTERLEAVE", Nodes: "0"}},
		{"flags", specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0", Flags: []specs.MemoryPolicyFlagType{"x"}}},
		{"nodes", specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0-9876543210"}},
		{"nodes", specs.LinuxMemoryPolicy{Mode: specs.MpolDefault, Nodes: "0-7"}},
	} {
		b := newBundle(t, "true")
		b.spec.Linux.MemoryPolicy = &tt.p
		if _, err := b.create(container.Stdio{}); !errors.Is(err, container.ErrInvalid) || !strings.Contains(err.Error(), "linux.memoryPolicy."+tt.name) {
			t.Errorf("%+v: %v", tt.p, err)
		}
	}
}
