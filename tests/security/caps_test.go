package security

import "github.com/ibex-run/ibex/exec"

// mask is a list of capabilities as /proc/PID/status prints it.
func mask(names []string) (m uint64) {
	for _, n := range names {
		bit, ok := exec.CapBit(n)
		if !ok {
			panic("unknown capability " + n)
		}
		m |= 1 << bit
	}
	return m
}
