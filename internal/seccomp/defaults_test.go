package seccomp_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var defaults = []string{"containerd-few", "docker-few"}

func TestDefaultProfilesDecideAsTheirRulesSay(t *testing.T) {
	for _, name := range defaults {
		for native, lists := range machines {
			t.Run(name+"/"+string(native), func(t *testing.T) {
				t.Parallel()
				p := load(t, name+".json")
				p.Architectures = lists[len(lists)/2]
				var inputs []seccomptest.Data
				for _, a := range append([]specs.Arch{native, specs.ArchPPC64LE}, p.Architectures...) {
					for _, base := range []uint32{0, 0x0f0000, 0x40000000, 0xfffffff0} {
						for nr := base; nr-base < 600; nr++ {
							inputs = append(inputs, seccomptest.Data{Nr: nr, Arch: seccomptest.Audit[a]})
						}
					}
				}
				inputs = append(inputs, random(native, 1).Inputs(p, native, 2000)...)
				check(t, native, p, inputs)
			})
		}
	}
}

// The golden files show a reviewer what a change of the compiler or of the
// table does to a program in the field.
func TestProgramsOfDefaultProfiles(t *testing.T) {
	for _, name := range defaults {
		f, err := seccomp.CompileFor(specs.ArchX86_64, load(t, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		got := seccomp.Disassemble(f.Program)
		path := filepath.Join("testdata", name+".bpf.txt")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: the program has changed; compare with -update\n%s", path, got)
		}
	}
}

// A call that is allowed whatever its arguments must not touch them: only then
// does the kernel put it in its bitmap and not run the program (Linux 5.11).
func TestAllowedCallsDoNotTouchArguments(t *testing.T) {
	f, err := seccomp.CompileFor(specs.ArchX86_64, load(t, "containerd-few.json"))
	if err != nil {
		t.Fatal(err)
	}
	longest := 0
	for _, name := range []string{"read", "write", "openat", "futex", "epoll_pwait2", "openat2"} {
		d := seccomptest.Data{Nr: number(t, specs.ArchX86_64, name), Arch: seccomptest.Audit[specs.ArchX86_64]}
		got, steps, err := seccomptest.Trace(f.Program, &d, func(pc int, in unix.SockFilter) {
			if in.Code == unix.BPF_LD|unix.BPF_W|unix.BPF_ABS && in.K > 4 {
				t.Errorf("%s: instruction %d loads an argument", name, pc)
			}
		})
		if err != nil || got != allow {
			t.Fatalf("%s: %#x, %v", name, got, err)
		}
		longest = max(longest, steps)
	}
	t.Logf("at most %d instructions, of %d", longest, len(f.Program))
}

func TestDisassembleNamesWhatItKnows(t *testing.T) {
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{
		rule("mount", 13), rule("clone", 1, arg(0, specs.OpMaskedEqual, 0x10000000, 0x10000000)),
		{Names: []string{"ptrace"}, Action: specs.ActKillProcess},
		rule("ioctl", 38, arg(1, specs.OpGreaterThan, 0x5412)),
	}}
	f, err := seccomp.CompileFor(specs.ArchX86_64, p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "small.bpf.txt")
	got := seccomp.Disassemble(f.Program)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || got != string(want) {
		t.Errorf("%v; got\n%s\nwant\n%s", err, got, want)
	}
	if got := seccomp.Disassemble([]unix.SockFilter{{Code: 0x84, K: 1}}); got != "   0: ?    code=0x84 jt=0 jf=0 k=0x1\n" {
		t.Errorf("an instruction that is never used: %q", got)
	}
}
