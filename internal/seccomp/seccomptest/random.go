package seccomptest

import (
	"math/rand/v2"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/seccomp"
)

// Random makes profiles. The numbers in them are drawn from a small set, so
// that rules meet on the same calls, arguments and values.
type Random struct {
	*rand.Rand
	Archs   [][]specs.Arch // what a profile's architectures are drawn from
	Calls   []string       // what names are drawn from
	OneVerb bool           // all rules of a profile have the same action
	Equal   bool           // only EQ and MASKED_EQ in rules
	Single  bool           // only one argument in a rule
	Small   bool           // rules compare with values of 31 bits
}

var values = []uint64{
	0, 1, 2, 3, 5, 7, 8, 0x10, 0xff, 0x20000, 0x7e020000, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff,
	0x1_00000000, 0x1_00000001, 0x1_00000005, 0x2_00000003, 0x7fffffff_ffffffff, 0x80000000_00000000,
	0xffffffff_00000000, 0xffffffff_fffffffe, 0xffffffff_ffffffff,
}

// Profile draws a profile.
func (r *Random) Profile() *specs.LinuxSeccomp {
	all := []specs.LinuxSeccompAction{
		specs.ActErrno, specs.ActErrno, specs.ActAllow, specs.ActAllow, specs.ActKill, specs.ActKillThread,
		specs.ActKillProcess, specs.ActTrap, specs.ActTrace, specs.ActLog,
	}
	p := &specs.LinuxSeccomp{
		DefaultAction: all[r.IntN(len(all))],
		Architectures: r.Archs[r.IntN(len(r.Archs))],
	}
	p.DefaultErrnoRet = r.errno(p.DefaultAction)
	verb := all[r.IntN(len(all))]
	verbErrno := r.errno(verb)
	// A few calls that several rules name, and now and then very many rules.
	few := make([]string, 1+r.IntN(6))
	for i := range few {
		few[i] = r.Calls[r.IntN(len(r.Calls))]
	}
	rules := 1 + r.IntN(12)
	for range rules {
		s := specs.LinuxSyscall{Action: verb, ErrnoRet: verbErrno}
		if !r.OneVerb {
			s.Action = all[r.IntN(len(all))]
			s.ErrnoRet = r.errno(s.Action)
		}
		if r.IntN(3) > 0 {
			s.Names = []string{few[r.IntN(len(few))]}
			s.Args = r.args()
		} else {
			for range 1 + r.IntN(8) {
				s.Names = append(s.Names, r.Calls[r.IntN(len(r.Calls))])
			}
		}
		p.Syscalls = append(p.Syscalls, s)
	}
	return p
}

func (r *Random) errno(a specs.LinuxSeccompAction) *uint {
	if a != specs.ActErrno && a != specs.ActTrace || r.IntN(3) == 0 {
		return nil
	}
	n := uint(1 + r.IntN(40))
	return &n
}

func (r *Random) args() []specs.LinuxSeccompArg {
	n := 1
	if !r.Single {
		n += r.IntN(3)
	}
	ops := seccomp.Operators()
	if r.Equal {
		ops = []string{"SCMP_CMP_EQ", "SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ"}
	}
	list := make([]specs.LinuxSeccompArg, n)
	for i := range list {
		a := &list[i]
		a.Index = uint(r.IntN(3))
		if r.IntN(8) == 0 {
			a.Index = uint(r.IntN(6))
		}
		a.Op = specs.LinuxSeccompOperator(ops[r.IntN(len(ops))])
		a.Value = r.value()
		if a.Op == specs.OpMaskedEqual && r.IntN(2) == 0 {
			a.ValueTwo = r.value()
		}
		if r.Small {
			a.Value &= 0x7fffffff
			a.ValueTwo &= 0x7fffffff
		}
	}
	return list
}

func (r *Random) value() uint64 {
	if r.IntN(2) == 0 {
		return values[r.IntN(6)]
	}
	return values[r.IntN(len(values))]
}

// Inputs draws calls that a profile is about: its numbers and their
// neighbours, on its architectures and one more, with arguments at and around
// the values it compares with.
func (r *Random) Inputs(p *specs.LinuxSeccomp, native specs.Arch, n int) []Data {
	archs := append([]specs.Arch{native}, p.Architectures...)
	var around []uint64
	for _, s := range p.Syscalls {
		for _, a := range s.Args {
			around = append(around, a.Value, a.Value+1, a.Value-1, a.ValueTwo, a.Value^a.ValueTwo, a.Value^1<<32)
		}
	}
	list := make([]Data, n)
	for i := range list {
		d := &list[i]
		a := archs[r.IntN(len(archs))]
		d.Arch = Audit[a]
		d.Nr = r.number(p, a)
		if r.IntN(50) == 0 {
			d.Arch = Audit[specs.ArchRISCV64]
		}
		for k := range d.Args {
			switch c := r.IntN(4); {
			case c > 0 && len(around) > 0:
				d.Args[k] = around[r.IntN(len(around))]
			case c == 1:
				d.Args[k] = r.Uint64()
			default:
				d.Args[k] = r.value()
			}
		}
	}
	return list
}

func (r *Random) number(p *specs.LinuxSeccomp, a specs.Arch) uint32 {
	switch r.IntN(12) {
	case 0:
		return [...]uint32{
			0, 0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0x80000001, 0xbfffffff, 0xc0000000, 0xfffffffe, 0xffffffff,
		}[r.IntN(10)]
	case 1:
		return r.Uint32N(1024)
	case 2:
		return 0x40000000 | r.Uint32N(1024)
	}
	s := &p.Syscalls[r.IntN(len(p.Syscalls))]
	if r.IntN(3) > 0 {
		// Rather the rules with arguments.
		for range 4 {
			if len(s.Args) > 0 {
				break
			}
			s = &p.Syscalls[r.IntN(len(p.Syscalls))]
		}
	}
	name := s.Names[r.IntN(len(s.Names))]
	if call := through(name); call != "" && r.IntN(2) == 0 {
		name = call
	}
	nr, _ := seccomp.Number(a, name)
	if r.IntN(6) == 0 {
		nr += r.Uint32N(3) - 1
	}
	return nr
}
