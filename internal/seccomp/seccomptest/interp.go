package seccomptest

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Data is struct seccomp_data without the instruction pointer, which no OCI
// profile can ask about.
type Data struct {
	Nr   uint32
	Arch uint32 // AUDIT_ARCH_*
	Args [6]uint64
}

func (d *Data) word(offset uint32) (uint32, error) {
	switch {
	case offset%4 != 0 || offset >= 64:
		return 0, fmt.Errorf("load from offset %d", offset)
	case offset == 0:
		return d.Nr, nil
	case offset == 4:
		return d.Arch, nil
	case offset < 16:
		return 0, nil // instruction pointer
	}
	arg := d.Args[(offset-16)/8]
	if offset/4%2 == 1 {
		arg >>= 32
	}
	return uint32(arg), nil
}

// Run executes a filter as the kernel does on a little-endian machine. It
// returns the verdict and how many instructions ran, or an error where the
// kernel would have refused the filter.
func Run(prog []unix.SockFilter, d *Data) (verdict uint32, steps int, err error) {
	return Trace(prog, d, nil)
}

// Trace is Run that tells each instruction before it runs it.
func Trace(prog []unix.SockFilter, d *Data, each func(pc int, in unix.SockFilter)) (verdict uint32, steps int, err error) {
	var a, x uint32
	var mem [16]uint32
	for pc := 0; ; pc++ {
		if pc >= len(prog) {
			return 0, steps, fmt.Errorf("instruction %d is beyond the end", pc)
		}
		in := prog[pc]
		steps++
		if each != nil {
			each(pc, in)
		}
		operand := in.K
		if in.Code&unix.BPF_X != 0 {
			operand = x
		}
		taken := false
		switch in.Code &^ unix.BPF_X {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if a, err = d.word(in.K); err != nil {
				return 0, steps, err
			}
			continue
		case unix.BPF_LD | unix.BPF_IMM:
			a = in.K
			continue
		case unix.BPF_LD | unix.BPF_MEM:
			a = mem[in.K&15]
			continue
		case unix.BPF_ST:
			mem[in.K&15] = a
			continue
		case unix.BPF_MISC | unix.BPF_TAX:
			x = a
			continue
		case unix.BPF_ALU | unix.BPF_AND:
			a &= operand
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K, steps, nil
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ:
			taken = a == operand
		case unix.BPF_JMP | unix.BPF_JGT:
			taken = a > operand
		case unix.BPF_JMP | unix.BPF_JGE:
			taken = a >= operand
		case unix.BPF_JMP | unix.BPF_JSET:
			taken = a&operand != 0
		default:
			return 0, steps, fmt.Errorf("instruction %d: unknown code %#x", pc, in.Code)
		}
		if taken {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
}
