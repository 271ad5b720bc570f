package container

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec"
)

// memoryModes and memoryFlags: set_mempolicy(2), <linux/mempolicy.h>.
var (
	memoryModes = map[specs.MemoryPolicyModeType]uint{
		specs.MpolDefault: 0, specs.MpolPreferred: 1, specs.MpolBind: 2, specs.MpolInterleave: 3,
		specs.MpolLocal: 4, specs.MpolPreferredMany: 5, specs.MpolWeightedInterleave: 6,
	}
	memoryFlags = map[specs.MemoryPolicyFlagType]uint{
		specs.MpolFStaticNodes: 1 << 15, specs.MpolFRelativeNodes: 1 << 14, specs.MpolFNumaBalancing: 1 << 13,
	}
)

// maxNode is MAX_NUMNODES of the largest kernels.
const maxNode = 1 << 10

// memoryPolicy turns linux.memoryPolicy into what set_mempolicy(2) takes, nil for
// none.
func memoryPolicy(l *specs.Linux) (*exec.MemoryPolicy, error) {
	if l.MemoryPolicy == nil {
		return nil, nil
	}
	mode, ok := memoryModes[l.MemoryPolicy.Mode]
	if !ok {
		return nil, invalid("linux.memoryPolicy.mode", "invalid memory policy mode %q", l.MemoryPolicy.Mode)
	}
	out := &exec.MemoryPolicy{Mode: mode}
	for _, f := range l.MemoryPolicy.Flags {
		bit, ok := memoryFlags[f]
		if !ok {
			return nil, invalid("linux.memoryPolicy.flags", "invalid memory policy flag %q", f)
		}
		out.Mode |= bit
	}
	nodes, err := numberMask(l.MemoryPolicy.Nodes, maxNode)
	if err != nil {
		return nil, invalid("linux.memoryPolicy.nodes", "invalid memory policy nodes %q: want nodes such as 0-3,7, below %d", l.MemoryPolicy.Nodes, maxNode)
	}
	if n := bits(nodes); n > 0 && (mode == memoryModes[specs.MpolDefault] || mode == memoryModes[specs.MpolLocal]) {
		return nil, invalid("linux.memoryPolicy.nodes", "%s mode requires 0 nodes but got %d", l.MemoryPolicy.Mode, n)
	}
	out.Nodes = nodes
	return out, nil
}

func bits(mask []byte) (n int) {
	for _, b := range mask {
		for ; b != 0; b &= b - 1 {
			n++
		}
	}
	return n
}

func memoryPolicyNames() (modes, flags []string) {
	for m := range memoryModes {
		modes = append(modes, string(m))
	}
	for f := range memoryFlags {
		flags = append(flags, string(f))
	}
	slices.Sort(modes)
	slices.Sort(flags)
	return modes, flags
}
