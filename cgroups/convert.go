package cgroups

import "math"

// Weight turns version 1 cpu.shares (2 to 262144, default 1024) into version 2
// cpu.weight (1 to 10000, default 100). Zero stays zero, for "not set".
//
// The curve is the one that crun 1.24 and runc 1.3.2 took up, a quadratic one
// in the exponent that goes through the three points that matter, (2, 1),
// (1024, 100) and (262144, 10000):
//
//	l = log2(shares);  weight = ceil(10 ^ ((l^2 + 125 l) / 612 - 7/34))
//
// The straight line that Kubernetes KEP-2254 proposed first gave the default of
// 1024 shares a weight of 39, less than half of what a process outside any
// container has.
func Weight(shares uint64) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	exponent := (l*l+125*l)/612.0 - 7.0/34.0
	return uint64(math.Ceil(math.Pow(10, exponent)))
}

// IOWeight turns version 1 blkio.weight (10 to 1000) into version 2 io.weight
// (1 to 10000), a straight line between the ends. Zero stays zero.
func IOWeight(weight uint16) uint64 {
	if weight == 0 {
		return 0
	}
	return 1 + (uint64(max(weight, 10))-10)*9999/990
}

// SwapMax turns the limits of runtime-spec, where swap is memory and swap
// together, into the value of version 2 memory.swap.max. Both are in bytes, -1
// means no limit and 0 not set. The result is -1 for "max"; set is false if
// nothing is to be written.
func SwapMax(limit, swap int64) (value int64, set bool, err error) {
	switch {
	case limit < -1:
		return 0, false, Invalid("memory.limit", "is below -1")
	case swap < -1:
		return 0, false, Invalid("memory.swap", "is below -1")
	case swap == 0 && limit == -1:
		// Version 1 cannot have memory without a limit below memory and swap with
		// one, so the request always meant both.
		return -1, true, nil
	case swap == 0:
		return 0, false, nil
	case swap == -1, limit == -1:
		return swap, true, nil
	case limit == 0:
		return 0, false, Invalid("memory.swap", "is memory and swap together and needs memory.limit beside it")
	case swap < limit:
		return 0, false, Invalid("memory.swap", "is memory and swap together and cannot be below memory.limit")
	}
	return swap - limit, true, nil
}
