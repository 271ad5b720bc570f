package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Disassemble prints a filter, one instruction a line: its index, the
// operation, where the outcomes of a comparison lead, and what the numbers
// mean where that can be told from the way there. It prints any filter that
// the kernel takes, not only those of this package; an instruction that it
// does not know is printed as numbers.
//
//	0: ld   arch
//	1: jeq  0xc000003e ? 2 : 9      ; SCMP_ARCH_X86_64
//	2: ld   nr
//	3: jge  61 ? 5 : 4              ; wait4
//	4: ret  ALLOW
func Disassemble(prog []unix.SockFilter) string {
	var b strings.Builder
	facts := make([]fact, len(prog)+1)
	facts[0].reached = true
	for i, in := range prog {
		text, note := facts[i].print(in, i)
		if note != "" {
			fmt.Fprintf(&b, "%4d: %-30s ; %s\n", i, text, note)
		} else {
			fmt.Fprintf(&b, "%4d: %s\n", i, text)
		}
		facts[i].follow(in, i, facts)
	}
	return b.String()
}

// fact is what is known before an instruction, on every way that leads to it.
type fact struct {
	reached bool
	loaded  bool   // the accumulator holds the word at offset
	offset  uint32 // in seccomp_data
	audit   uint32 // the architecture, if not 0
}

// meet keeps what is known on both ways.
func (f *fact) meet(o fact) {
	if !f.reached {
		*f = o
		f.reached = true
		return
	}
	if !o.loaded || f.offset != o.offset {
		f.loaded = false
	}
	if f.audit != o.audit {
		f.audit = 0
	}
}

// follow passes on what instruction i leaves behind.
func (f fact) follow(in unix.SockFilter, i int, facts []fact) {
	to := func(skip int, f fact) {
		if k := i + 1 + skip; k > i && k < len(facts) {
			facts[k].meet(f)
		}
	}
	if !f.reached {
		return
	}
	switch in.Code {
	case opRet:
	case opLoad:
		f.loaded, f.offset = true, in.K
		to(0, f)
	case opJump:
		to(int(in.K), f)
	case opJEq:
		yes := f
		if f.loaded && f.offset == offsetArch {
			yes.audit = in.K
		}
		to(int(in.Jt), yes)
		to(int(in.Jf), f)
	case opJGt, opJGe, opJSet:
		to(int(in.Jt), f)
		to(int(in.Jf), f)
	default:
		f.loaded = false
		to(0, f)
	}
}

func (f fact) print(in unix.SockFilter, i int) (text, note string) {
	jump := func(op string) (string, string) {
		k := fmt.Sprintf("%#x", in.K)
		if f.loaded && f.offset == offsetNumber && in.K < x32Bit {
			k = fmt.Sprint(in.K)
		}
		return fmt.Sprintf("%-4s %s ? %d : %d", op, k, i+1+int(in.Jt), i+1+int(in.Jf)), f.meaning(in.K)
	}
	switch in.Code {
	case opLoad:
		return "ld   " + fieldName(in.K), ""
	case opAnd:
		return fmt.Sprintf("and  %#x", in.K), ""
	case opJump:
		return fmt.Sprintf("jmp  %d", i+1+int(in.K)), ""
	case opRet:
		return "ret  " + actionName(in.K), ""
	case opJEq:
		return jump("jeq")
	case opJGt:
		return jump("jgt")
	case opJGe:
		return jump("jge")
	case opJSet:
		return jump("jset")
	}
	return fmt.Sprintf("?    code=%#x jt=%d jf=%d k=%#x", in.Code, in.Jt, in.Jf, in.K), ""
}

// meaning names a number that the accumulator is compared with.
func (f fact) meaning(k uint32) string {
	switch {
	case !f.loaded:
		return ""
	case f.offset == offsetArch:
		for i := range archs {
			if archs[i].audit == k {
				return string(archs[i].name)
			}
		}
	case f.offset == offsetNumber && f.audit != 0:
		for i := range archs {
			if a := &archs[i]; a.audit == f.audit && (a.base == x32Bit) == (k&x32Bit != 0) {
				return nameOf(a, k)
			}
		}
	}
	return ""
}

// fieldName names a word of struct seccomp_data on a little-endian machine.
func fieldName(offset uint32) string {
	switch {
	case offset == offsetNumber:
		return "nr"
	case offset == offsetArch:
		return "arch"
	case offset%4 != 0 || offset >= offsetArgs+6*8:
		return fmt.Sprintf("[%d]", offset)
	case offset < offsetArgs:
		return [...]string{"ip.lo", "ip.hi"}[(offset-8)/4]
	}
	return fmt.Sprintf("arg%d.%s", (offset-offsetArgs)/8, [...]string{"lo", "hi"}[offset/4%2])
}

// actionName prints a filter's verdict.
func actionName(ret uint32) string {
	data := ret & unix.SECCOMP_RET_DATA
	name := fmt.Sprintf("%#x", ret&unix.SECCOMP_RET_ACTION_FULL)
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_KILL_PROCESS:
		name = "KILL_PROCESS"
	case unix.SECCOMP_RET_KILL_THREAD:
		name = "KILL_THREAD"
	case unix.SECCOMP_RET_TRAP:
		name = "TRAP"
	case unix.SECCOMP_RET_ERRNO:
		if e := unix.ErrnoName(unix.Errno(data)); e != "" {
			return "ERRNO(" + e + ")"
		}
		return fmt.Sprintf("ERRNO(%d)", data)
	case unix.SECCOMP_RET_USER_NOTIF:
		name = "NOTIFY"
	case unix.SECCOMP_RET_TRACE:
		return fmt.Sprintf("TRACE(%d)", data)
	case unix.SECCOMP_RET_LOG:
		name = "LOG"
	case unix.SECCOMP_RET_ALLOW:
		name = "ALLOW"
	}
	if data != 0 {
		return fmt.Sprintf("%s(%d)", name, data)
	}
	return name
}
