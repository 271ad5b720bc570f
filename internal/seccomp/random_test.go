package seccomp_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

// machines are the native architectures, with the lists that profiles for
// them have in the field.
var machines = map[specs.Arch][][]specs.Arch{
	specs.ArchX86_64: {
		nil,
		{specs.ArchX86_64},
		{specs.ArchX86_64, specs.ArchX86},
		{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
		{specs.ArchX32},
		{specs.ArchX86, specs.ArchMIPSEL, specs.ArchPPC64LE},
	},
	specs.ArchAARCH64: {
		nil,
		{specs.ArchARM, specs.ArchAARCH64},
		{specs.ArchAARCH64, specs.ArchARM, specs.ArchRISCV64, specs.ArchLOONGARCH64, specs.ArchMIPSEL64},
	},
}

func random(native specs.Arch, seed uint64) *seccomptest.Random {
	return &seccomptest.Random{
		Rand:  rand.New(rand.NewPCG(seed, 1)),
		Archs: machines[native],
		Calls: append(seccomp.Names(native), "socketcall", "ipc", "waitpid", "set_tls", "no_such_call"),
	}
}

// check compares the program with the model on the given calls.
func check(t testing.TB, native specs.Arch, p *specs.LinuxSeccomp, inputs []seccomptest.Data) {
	t.Helper()
	f, err := seccomp.CompileFor(native, p)
	if err != nil {
		t.Fatalf("CompileFor: %v", err)
	}
	m := seccomptest.NewModel(native, p)
	for i := range inputs {
		d := &inputs[i]
		got, _, err := seccomptest.Run(f.Program, d)
		if err != nil {
			t.Fatalf("run: %v\n%s", err, seccomp.Disassemble(f.Program))
		}
		if want := m.Verdicts(d); !slices.Contains(want, got) {
			text, _ := json.Marshal(p)
			t.Fatalf("%s: nr %#x arch %#x args %#x: got %#x; the profile says %#x\n%s\n%s",
				native, d.Nr, d.Arch, d.Args, got, want, text, seccomp.Disassemble(f.Program))
		}
	}
}

func TestRandomProfilesDecideAsTheirRulesSay(t *testing.T) {
	profiles := 10000
	if testing.Short() {
		profiles = 1000
	}
	for native := range machines {
		t.Run(string(native), func(t *testing.T) {
			t.Parallel()
			refused := 0
			for seed := range uint64(profiles / len(machines)) {
				r := random(native, seed)
				r.OneVerb, r.Equal = seed%3 == 0, seed%5 == 0
				p := r.Profile()
				if _, err := seccomp.CompileFor(native, p); err != nil {
					if !strings.Contains(err.Error(), "contradicts") || r.OneVerb {
						t.Fatalf("seed %d: %v", seed, err)
					}
					refused++
					continue
				}
				check(t, native, p, r.Inputs(p, native, 40))
			}
			t.Logf("%d of %d profiles contradict themselves", refused, profiles/len(machines))
		})
	}
}

// The kernel refuses programs that its checker (net/core/filter.c,
// bpf_check_classic) does not like; this holds every jump inside and every way
// ending in a return.
func TestProgramsEndOnEveryWay(t *testing.T) {
	for native := range machines {
		for seed := range uint64(300) {
			f, err := seccomp.CompileFor(native, random(native, seed).Profile())
			if err != nil {
				continue
			}
			n := len(f.Program)
			for i, in := range f.Program {
				ok := true
				switch in.Code {
				case unix.BPF_RET | unix.BPF_K:
				case unix.BPF_JMP | unix.BPF_JA:
					ok = i+1+int(in.K) < n
				case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
					ok = i+1 < n
				default:
					ok = i+1+int(in.Jt) < n && i+1+int(in.Jf) < n
				}
				if !ok {
					t.Fatalf("%s seed %d: instruction %d leaves the program\n%s", native, seed, i, seccomp.Disassemble(f.Program))
				}
			}
		}
	}
}
