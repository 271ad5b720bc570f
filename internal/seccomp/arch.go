package seccomp

import (
	"fmt"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	absent = 0xffff // a call that an interface does not have

	// armPrivateCode and above stand for ARM's private calls,
	// arch/arm/include/uapi/asm/unistd.h: __ARM_NR_BASE + n.
	armPrivateCode = 960
	armPrivateBase = 0x0f0000

	numCodes = 1024 // every code in the table is lower

	// x32Bit marks an x32 call: arch/x86/include/uapi/asm/unistd.h.
	x32Bit = 0x40000000
)

// arch is one system call interface: what the kernel calls an audit
// architecture, or x32, which shares that of x86_64.
type arch struct {
	name    specs.Arch
	goarch  string // set where this is the native interface of a Go port
	audit   uint32 // AUDIT_ARCH_*, include/uapi/linux/audit.h
	column  int
	base    uint32 // number = base + code
	wide    bool   // 64-bit arguments
	muxed   bool   // has socketcall(2) and ipc(2)
	private bool   // has ARM's private calls
}

// archs are the interfaces that a little-endian machine can filter. The fields
// of seccomp_data have the machine's byte order, so the others can never match.
var archs = [...]arch{
	{name: specs.ArchX86_64, goarch: "amd64", audit: 0xc000003e, column: colX8664, wide: true},
	{name: specs.ArchX86, audit: 0x40000003, column: colX86, muxed: true},
	{name: specs.ArchX32, audit: 0xc000003e, column: colX32, base: x32Bit},
	{name: specs.ArchAARCH64, goarch: "arm64", audit: 0xc00000b7, column: colAARCH64, wide: true},
	{name: specs.ArchARM, audit: 0x40000028, column: colARM, private: true},
	{name: specs.ArchMIPSEL, audit: 0x40000008, column: colMIPSEL, base: 4000, muxed: true},
	{name: specs.ArchMIPSEL64, audit: 0xc0000008, column: colMIPSEL64, base: 5000, wide: true},
	{name: specs.ArchPPC64LE, goarch: "ppc64le", audit: 0xc0000015, column: colPPC64LE, wide: true, muxed: true},
	{name: specs.ArchRISCV64, goarch: "riscv64", audit: 0xc00000f3, column: colRISCV64, wide: true},
	{name: specs.ArchLOONGARCH64, goarch: "loong64", audit: 0xc0000102, column: colLOONG64, wide: true},
}

// number turns a code of the table into a system call number.
func (a *arch) number(code uint16) uint32 {
	if a.private && code >= armPrivateCode {
		return armPrivateBase + uint32(code) - armPrivateCode
	}
	return a.base + uint32(code)
}

func findArch(name specs.Arch) (*arch, error) {
	for i := range archs {
		if archs[i].name == name {
			return &archs[i], nil
		}
	}
	switch name {
	case specs.ArchMIPS, specs.ArchMIPS64, specs.ArchMIPS64N32, specs.ArchPPC, specs.ArchPPC64,
		specs.ArchS390, specs.ArchS390X, specs.ArchPARISC, specs.ArchPARISC64, specs.ArchM68K, specs.ArchSHEB:
		return nil, fmt.Errorf("%s has another byte order than this machine", name)
	case specs.ArchMIPSEL64N32, specs.ArchSH:
		return nil, fmt.Errorf("%s has no system call table here", name)
	}
	return nil, fmt.Errorf("unknown architecture %q", name)
}

// Native is the architecture of this machine in the profile's terms, and ""
// on a port that this package does not know.
func Native() specs.Arch {
	for i := range archs {
		if archs[i].goarch == runtime.GOARCH {
			return archs[i].name
		}
	}
	return ""
}

// selectArchs lists the interfaces of a filter: the native one, then the
// profile's in its order, each once.
func selectArchs(native specs.Arch, listed []specs.Arch) ([]*arch, error) {
	a, err := findArch(native)
	if err != nil {
		return nil, fmt.Errorf("native architecture: %w", err)
	}
	selected := make([]*arch, 1, len(archs))
	selected[0] = a
next:
	for i, name := range listed {
		a, err := findArch(name)
		if err != nil {
			return nil, fmt.Errorf("seccomp.architectures[%d]: %w", i, err)
		}
		for _, s := range selected {
			if s == a {
				continue next
			}
		}
		selected = append(selected, a)
	}
	return selected, nil
}
