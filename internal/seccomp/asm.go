package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, include/uapi/linux/seccomp.h.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

const (
	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opJump = unix.BPF_JMP | unix.BPF_JA
	opJEq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opJGt  = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	opJGe  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opJSet = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K
)

// asm writes a program from its last instruction to its first. All jumps of
// classic BPF lead forwards, so every target is there when a jump is written.
type asm struct {
	code []unix.SockFilter // code[0] is the program's last instruction
	rets []pos             // the newest return of each action
}

// pos counts an instruction from the end of the program; the last is 1.
type pos int

func (a *asm) emit(op uint16, k uint32) pos {
	a.code = append(a.code, unix.SockFilter{Code: op, K: k})
	return pos(len(a.code))
}

// skip is how many instructions the next one would jump over to reach p.
func (a *asm) skip(p pos) int { return len(a.code) - int(p) }

const maxSkip = 255 // jt and jf of a conditional jump are bytes

// ret returns a place, in reach of the next instruction, that returns action.
func (a *asm) ret(action uint32) pos {
	for i, p := range a.rets {
		if a.code[p-1].K == action {
			if a.skip(p) > maxSkip {
				a.rets[i] = a.emit(opRet, action)
			}
			return a.rets[i]
		}
	}
	p := a.emit(opRet, action)
	a.rets = append(a.rets, p)
	return p
}

// near returns a place in reach that does what happens at p.
func (a *asm) near(p pos) pos {
	if a.skip(p) <= maxSkip {
		return p
	}
	if target := a.code[p-1]; target.Code == opRet {
		return a.ret(target.K)
	}
	return a.emit(opJump, uint32(a.skip(p)))
}

// branch writes a conditional jump.
func (a *asm) branch(op uint16, k uint32, yes, no pos) pos {
	if yes == no {
		return yes
	}
	for a.skip(yes) > maxSkip || a.skip(no) > maxSkip {
		yes = a.near(yes)
		no = a.near(no)
	}
	jt, jf := uint8(a.skip(yes)), uint8(a.skip(no))
	p := a.emit(op, k)
	a.code[p-1].Jt, a.code[p-1].Jf = jt, jf
	return p
}

// fallTo makes the instruction that is written next run on into p.
func (a *asm) fallTo(p pos) {
	if a.skip(p) != 0 {
		a.emit(opJump, uint32(a.skip(p)))
	}
}

// load writes the load of a word of seccomp_data, which runs on into next.
func (a *asm) load(offset uint32, next pos) pos {
	a.fallTo(next)
	return a.emit(opLoad, offset)
}

// program turns the code around, with entry first and without instructions
// that nothing leads to.
func (a *asm) program(entry pos) ([]unix.SockFilter, error) {
	n := int(entry)
	at := func(i int) *unix.SockFilter { return &a.code[n-1-i] }
	// index[i] is first whether instruction i is reached, then its new place.
	index := make([]int32, n+1)
	index[0] = 1
	for i := range n {
		if index[i] == 0 {
			continue
		}
		switch in := at(i); in.Code {
		case opRet:
		case opJump:
			index[i+1+int(in.K)] = 1
		case opJEq, opJGt, opJGe, opJSet:
			index[i+1+int(in.Jt)] = 1
			index[i+1+int(in.Jf)] = 1
		default:
			index[i+1] = 1
		}
	}
	size := int32(0)
	for i := range index {
		reached := index[i]
		index[i] = size
		size += reached
	}
	if size > maxInstructions {
		return nil, fmt.Errorf("seccomp: the profile needs %d instructions, the kernel takes %d", size, maxInstructions)
	}
	out := make([]unix.SockFilter, size)
	for i := range n {
		here := index[i]
		if index[i+1] == here {
			continue
		}
		in := *at(i)
		switch in.Code {
		case opJump:
			in.K = uint32(index[i+1+int(in.K)] - here - 1)
		case opJEq, opJGt, opJGe, opJSet:
			in.Jt = uint8(index[i+1+int(in.Jt)] - here - 1)
			in.Jf = uint8(index[i+1+int(in.Jf)] - here - 1)
		}
		out[here] = in
	}
	return out, nil
}
