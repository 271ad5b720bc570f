package seccomp_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

// FuzzProfile takes any JSON for a profile. What Compile accepts must fit the
// kernel and decide as the model does.
func FuzzProfile(f *testing.F) {
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X32"],"syscalls":[`+
		`{"names":["read","socket"],"action":"SCMP_ACT_ALLOW"},{"names":["clone"],"action":"SCMP_ACT_TRACE","errnoRet":7,`+
		`"args":[{"index":0,"value":2114060288,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}]}`),
		uint32(unix.SYS_CLONE), uint8(0), uint64(0x10000000), uint64(1), uint64(2))
	for seed := range uint64(4) {
		text, err := json.Marshal(random(specs.ArchX86_64, seed).Profile())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint32(seed), uint8(seed), seed, ^seed, seed<<32)
	}
	archs := seccomp.Archs()
	f.Fuzz(func(t *testing.T, text []byte, nr uint32, a uint8, a0, a1, a2 uint64) {
		p := new(specs.LinuxSeccomp)
		if json.Unmarshal(text, p) != nil {
			t.Skip("not a profile")
		}
		for _, native := range []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64} {
			filter, err := seccomp.CompileFor(native, p)
			if err != nil || filter == nil {
				continue
			}
			if n := len(filter.Program); n < 1 || n > 4096 {
				t.Fatalf("%d instructions", n)
			}
			seccomp.Disassemble(filter.Program)
			audit := seccomptest.Audit[specs.Arch(archs[int(a)%len(archs)])]
			d := seccomptest.Data{Nr: nr, Arch: audit, Args: [6]uint64{a0, a1, a2}}
			got, _, err := seccomptest.Run(filter.Program, &d)
			if err != nil {
				t.Fatal(err)
			}
			if want := seccomptest.NewModel(native, p).Verdicts(&d); !slices.Contains(want, got) {
				t.Fatalf("%+v: got %#x; the profile says %#x", d, got, want)
			}
		}
	})
}

// FuzzRandom lets the fuzzer choose among random profiles: it finds its way to
// rules that meet, which JSON hides from it.
func FuzzRandom(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, seed%2 == 0, seed%3 == 0, seed%5 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, verb, equal, arm bool) {
		native := specs.ArchX86_64
		if arm {
			native = specs.ArchAARCH64
		}
		r := random(native, seed)
		r.OneVerb, r.Equal = verb, equal
		p := r.Profile()
		if _, err := seccomp.CompileFor(native, p); err != nil {
			t.Skip("rules that contradict each other")
		}
		check(t, native, p, r.Inputs(p, native, 200))
	})
}

// FuzzDisassemble prints any program without panicking.
func FuzzDisassemble(f *testing.F) {
	f.Add([]byte{0x20, 0, 0, 0, 0, 0, 0, 4, 0x15, 0, 255, 255, 0, 0, 0, 1, 0x05, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var prog []unix.SockFilter
		for ; len(b) >= 8; b = b[8:] {
			prog = append(prog, unix.SockFilter{
				Code: uint16(b[0]) | uint16(b[1])<<8, Jt: b[2], Jf: b[3],
				K: uint32(b[4])<<24 | uint32(b[5])<<16 | uint32(b[6])<<8 | uint32(b[7]),
			})
		}
		seccomp.Disassemble(prog)
	})
}
