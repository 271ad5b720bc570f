package plan

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Slot is a place for the result of a step. A slot that no step has filled
// yet, because the step was skipped or its error tolerated, holds -1, so that
// using it as a descriptor gives EBADF.
type Slot int

// FD returns the operand that stands for the descriptor in the slot.
func (s Slot) FD() FD { return FD{slot: s, isSlot: true} }

// Label is a place in the plan that a step may jump to. Jumps go forward only,
// so every plan ends.
type Label int

// Buf is a piece of memory of the plan, zeroed when the child starts.
type Buf int

// FD is a descriptor operand: a number that the child inherits, or a slot.
// The zero value is not valid.
type FD struct {
	num    int
	name   string
	slot   Slot
	isSlot bool
}

// Num returns the operand for the inherited descriptor fd. The plan is printed
// with the name ("fd=rootfs"), never the number, so that two runs print alike.
func Num(fd int, name string) FD { return FD{num: fd, name: name} }

// Cwd is AT_FDCWD: paths are relative to the child's working directory.
var Cwd = FD{num: unix.AT_FDCWD, name: "cwd"}

// noFD is the operand for a descriptor that a call does not need.
var noFD = FD{num: 0, name: "none"}

// unresolved is the number of a descriptor in a plan that was parsed from text
// without numbers. Such a plan prints but does not run.
const unresolved = -1 << 31

// Plan is a list of system calls that a forked child issues one after the
// other. Until Close it is immutable: it may be printed and forked concurrently,
// and more than once.
type Plan struct {
	ops   []op
	args  []arg
	names []string // names of descriptors
	data  []byte   // every string and byte operand, in order of addition
	offs  []uint32 // ends of the entries of string vectors in data
	bufs  []uint32 // sizes of the buffers in bytes
	slots int
	about []subject // what steps are for, by first step

	// withheld says what was left out of the text that the plan was parsed
	// from. Empty means that the plan can run.
	withheld string

	mem     memory
	cleanup runtime.Cleanup
	arena   []uint64 // all memory that the steps point to; see compile.go
	steps   []step
}

// subject says what the steps from first on are for.
type subject struct {
	first int
	text  string
}

// Len returns the number of steps.
func (p *Plan) Len() int { return len(p.ops) }

// op is a step as the builder recorded it and as the printer shows it.
type op struct {
	kind    kind
	nargs   uint8
	hasWant bool
	first   uint32 // index of the first operand in args
	out     int32  // slot of the result, or -1
	ok      int32  // label, after Plan the step, to go to on success; -1: next
	zero    int32  // the same for a result of 0
	want    uint64
	rules   [maxRules]rule
}

// rule says where to go on after an errno. A zero errno ends the list.
type rule struct {
	errno uint16
	to    uint16 // label, after Plan the step; nextStep: the following one
}

const (
	maxRules = 8
	nextStep = 1<<16 - 1
	maxSteps = nextStep - 1
	maxErrno = 4095 // MAX_ERRNO in the kernel's include/linux/err.h
)

// argKind is what an operand holds.
type argKind uint8

const (
	argNum  argKind = iota // val is the number
	argFD                  // val is the descriptor, aux the index of its name
	argSlot                // val is the slot
	argData                // data[val:val+aux], followed by a NUL
	argBuf                 // val is the buffer, aux the offset in it
	argVec                 // offs[val:val+aux] end the entries
)

// arg is one operand. In a plan parsed from abbreviated text, hidden operands
// print as the abbreviation again.
type arg struct {
	kind   argKind
	hidden bool
	aux    uint32
	val    uint64
}

// step is what the child executes. It holds no Go pointers. Addresses point
// into the arena.
type step struct {
	nr     uintptr
	args   [6]uintptr
	want   uintptr
	patch  uint32 // arena offset where args[5] goes, 32 bits, before the call; 0: none
	out    uint32 // arena offset of the slot for the result; 0: none
	ok     uint16 // step to go to on success; 0: the next one
	zero   uint16 // step to go to on a result of 0; 0: as for any success
	slots  uint8  // bit i: args[i] is the arena offset of a slot
	flags  uint8
	rules  [maxRules]rule
	nrules uint8
}

// Flags of a step.
const (
	stepRetry = 1 << iota // issue it again after EINTR
	stepWant              // results other than want are EPROTO
)

// System call numbers of the steps that are none.
const (
	nrExpectByte  = ^uintptr(0) - iota // args: arena offset, byte, errno
	nrExpectEqual                      // args: arena offset, arena offset, errno
)
