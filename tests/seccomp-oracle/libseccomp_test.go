//go:build cgo && seccomp

package oracle

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

var scmpArchs = map[specs.Arch]libseccomp.ScmpArch{
	specs.ArchX86: libseccomp.ArchX86, specs.ArchX86_64: libseccomp.ArchAMD64, specs.ArchX32: libseccomp.ArchX32,
	specs.ArchARM: libseccomp.ArchARM, specs.ArchAARCH64: libseccomp.ArchARM64,
	specs.ArchMIPSEL: libseccomp.ArchMIPSEL, specs.ArchMIPSEL64: libseccomp.ArchMIPSEL64,
	specs.ArchPPC64LE: libseccomp.ArchPPC64LE, specs.ArchRISCV64: libseccomp.ArchRISCV64,
	specs.ArchLOONGARCH64: libseccomp.ArchLOONGARCH64,
}

var scmpOps = map[specs.LinuxSeccompOperator]libseccomp.ScmpCompareOp{
	specs.OpEqualTo: libseccomp.CompareEqual, specs.OpNotEqual: libseccomp.CompareNotEqual,
	specs.OpGreaterThan: libseccomp.CompareGreater, specs.OpGreaterEqual: libseccomp.CompareGreaterEqual,
	specs.OpLessThan: libseccomp.CompareLess, specs.OpLessEqual: libseccomp.CompareLessOrEqual,
	specs.OpMaskedEqual: libseccomp.CompareMaskedEqual,
}

func scmpAction(a specs.LinuxSeccompAction, errnoRet *uint) libseccomp.ScmpAction {
	code := int16(unix.EPERM)
	if errnoRet != nil {
		code = int16(*errnoRet)
	}
	switch a {
	case specs.ActErrno:
		return libseccomp.ActErrno.SetReturnCode(code)
	case specs.ActTrace:
		return libseccomp.ActTrace.SetReturnCode(code)
	case specs.ActTrap:
		return libseccomp.ActTrap
	case specs.ActAllow:
		return libseccomp.ActAllow
	case specs.ActLog:
		return libseccomp.ActLog
	case specs.ActNotify:
		return libseccomp.ActNotify
	case specs.ActKillProcess:
		return libseccomp.ActKillProcess
	}
	return libseccomp.ActKillThread
}

// reference is a profile as runc gives it to libseccomp, with the limits that
// runc's ENOSYS stub gets for it.
type reference struct {
	program []unix.SockFilter
	last    map[uint32]map[bool]uint32 // by audit architecture and x32 bit
}

// build makes the calls of libseccomp that runc makes for a profile. Where
// native is not this machine's architecture, that one is taken out again.
func build(native specs.Arch, p *specs.LinuxSeccomp) (*libseccomp.ScmpFilter, error) {
	deflt := scmpAction(p.DefaultAction, p.DefaultErrnoRet)
	f, err := libseccomp.NewFilter(deflt)
	if err != nil {
		return nil, err
	}
	for _, a := range append([]specs.Arch{native}, p.Architectures...) {
		if err := f.AddArch(scmpArchs[a]); err != nil {
			return nil, fmt.Errorf("%s: %w", a, err)
		}
	}
	self, err := libseccomp.GetNativeArch()
	if err != nil {
		return nil, err
	}
	if self != scmpArchs[native] {
		if err := f.RemoveArch(self); err != nil {
			return nil, err
		}
	}
	names := 0
	for _, s := range p.Syscalls {
		names += len(s.Names)
	}
	if names > 32 {
		_ = f.SetOptimize(2)
	}
	for _, s := range p.Syscalls {
		action := scmpAction(s.Action, s.ErrnoRet)
		if action == deflt {
			continue
		}
		for _, name := range s.Names {
			nr, err := libseccomp.GetSyscallFromName(name)
			if err != nil {
				continue
			}
			if err := addRule(f, nr, action, s.Args); err != nil {
				return f, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return f, nil
}

func addRule(f *libseccomp.ScmpFilter, nr libseccomp.ScmpSyscall, action libseccomp.ScmpAction, args []specs.LinuxSeccompArg) error {
	if len(args) == 0 {
		return f.AddRule(nr, action)
	}
	var conds []libseccomp.ScmpCondition
	var seen []uint
	twice := false
	for _, a := range args {
		c, err := libseccomp.MakeCondition(a.Index, scmpOps[a.Op], a.Value, a.ValueTwo)
		if err != nil {
			return err
		}
		twice = twice || slices.Contains(seen, a.Index)
		seen = append(seen, a.Index)
		conds = append(conds, c)
	}
	if !twice {
		return f.AddRuleConditional(nr, action, conds)
	}
	for _, c := range conds {
		if err := f.AddRuleConditional(nr, action, []libseccomp.ScmpCondition{c}); err != nil {
			return err
		}
	}
	return nil
}

func newReference(native specs.Arch, p *specs.LinuxSeccomp) (*reference, error) {
	f, err := build(native, p)
	if f != nil {
		defer f.Release()
	}
	if err != nil {
		return nil, err
	}
	program, err := export(f)
	if err != nil {
		return nil, err
	}
	r := &reference{program: program, last: map[uint32]map[bool]uint32{}}
	switch p.DefaultAction {
	case specs.ActAllow, specs.ActLog, specs.ActTrace:
		return r, nil
	}
	for _, a := range append([]specs.Arch{native}, p.Architectures...) {
		last := libseccomp.ScmpSyscall(0)
		for _, s := range p.Syscalls {
			for _, name := range s.Names {
				if nr, err := libseccomp.GetSyscallFromNameByArch(name, scmpArchs[a]); err == nil {
					last = max(last, nr)
				}
			}
		}
		audit := seccomptest.Audit[a]
		if last != 0 {
			if r.last[audit] == nil {
				r.last[audit] = map[bool]uint32{}
			}
			r.last[audit][a == specs.ArchX32] = uint32(last)
		}
	}
	return r, nil
}

func export(f *libseccomp.ScmpFilter) ([]unix.SockFilter, error) {
	fd, err := unix.MemfdCreate("bpf", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "bpf")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, err
	}
	buf := make([]byte, 8*65536)
	n, err := file.ReadAt(buf, 0)
	if n == len(buf) || n%8 != 0 {
		return nil, fmt.Errorf("exported program has %d bytes: %w", n, err)
	}
	return decode(buf[:n]), nil
}

func decode(buf []byte) []unix.SockFilter {
	program := make([]unix.SockFilter, len(buf)/8)
	for i := range program {
		b := buf[8*i:]
		program[i] = unix.SockFilter{
			Code: binary.NativeEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.NativeEndian.Uint32(b[4:]),
		}
	}
	return program
}

// run is what a process under runc would get for a call.
func (r *reference) run(d *seccomptest.Data) (verdict uint32, steps int, err error) {
	x32 := d.Arch == seccomptest.Audit[specs.ArchX86_64] && d.Nr>>30&1 == 1
	if last, ok := r.last[d.Arch][x32]; ok && d.Nr > last {
		return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS), 0, nil
	}
	return seccomptest.Run(r.program, d)
}
