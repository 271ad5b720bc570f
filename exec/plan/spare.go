package plan

import "sync"

// spare are the slices of plans that were closed, for the next builder: a plan
// has 30 KiB of them, and a shim that is asked for an exec is soon asked for the
// next. The collector takes what nobody asks for.
var spare sync.Pool // of *slices

// slices are what a builder appends to.
type slices struct {
	ops   []op
	args  []arg
	names []string
	data  []byte
	offs  []uint32
}

// Sizes up to which slices are kept: an exec's.
const (
	spareOps  = 256
	spareArgs = 1024
	spareData = 16 << 10
)

// newPlan is an empty plan.
func newPlan() *Plan {
	s, ok := spare.Get().(*slices)
	if !ok {
		s = &slices{
			ops:   make([]op, 0, 128),
			args:  make([]arg, 0, 448),
			names: make([]string, 0, 16),
			data:  make([]byte, 0, 2048),
			offs:  make([]uint32, 0, 48),
		}
	}
	return &Plan{ops: s.ops, args: s.args, names: s.names, data: s.data, offs: s.offs}
}

// strip takes the slices from a plan, without what they said.
func (p *Plan) strip() {
	clear(p.data) // the environment
	clear(p.names)
	if p.ops != nil && cap(p.ops) <= spareOps && cap(p.args) <= spareArgs && cap(p.data) <= spareData {
		spare.Put(&slices{p.ops[:0], p.args[:0], p.names[:0], p.data[:0], p.offs[:0]})
	}
	p.ops, p.args, p.names, p.data, p.offs = nil, nil, nil, nil, nil
}
