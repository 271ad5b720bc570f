//go:build cgo && seccomp

package oracle

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	ctrseccomp "github.com/containerd/containerd/v2/contrib/seccomp"
	docker "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

var update = flag.Bool("update", false, "rewrite the copies of the default profiles in internal/seccomp/testdata")

// few and all are the capabilities that default profiles depend on.
var (
	few = []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT"}
	all = []string{
		"CAP_BPF", "CAP_DAC_READ_SEARCH", "CAP_PERFMON", "CAP_SYSLOG", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_CHROOT",
		"CAP_SYS_MODULE", "CAP_SYS_NICE", "CAP_SYS_PACCT", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG",
	}
)

func profiles(t testing.TB) map[string]*specs.LinuxSeccomp {
	t.Helper()
	list := map[string]*specs.LinuxSeccomp{}
	for name, caps := range map[string][]string{"few": few, "all": all} {
		spec := &specs.Spec{
			Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}},
			Linux:   &specs.Linux{},
		}
		list["containerd-"+name] = ctrseccomp.DefaultProfile(spec)
		p, err := docker.GetDefaultProfile(spec)
		if err != nil {
			t.Fatal(err)
		}
		list["docker-"+name] = p
	}
	return list
}

// The tests of package seccomp itself have copies, so that they need neither
// containerd nor Docker.
func TestCopiesOfDefaultProfilesAreCurrent(t *testing.T) {
	for _, name := range []string{"containerd-few", "docker-few"} {
		want, err := json.MarshalIndent(profiles(t)[name], "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		path := filepath.Join("..", "..", "internal", "seccomp", "testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, or not the profile of the version in go.mod; run with -update", path, err)
		}
	}
}

// onlyKnown takes out the names that this libseccomp does not know, and
// listed is the profile for another machine.
func onlyKnown(p *specs.LinuxSeccomp, archs []specs.Arch, more ...string) *specs.LinuxSeccomp {
	q := *p
	q.Architectures = archs
	q.Syscalls = slices.Clone(p.Syscalls)
	for i := range q.Syscalls {
		s := &q.Syscalls[i]
		s.Names = known(slices.Clone(s.Names))
	}
	if len(more) > 0 {
		q.Syscalls = append(q.Syscalls, specs.LinuxSyscall{Names: more, Action: specs.ActAllow})
	}
	return &q
}

// around are the arguments worth trying for a profile: what it compares with,
// the neighbours, and each with other high halves.
func around(p *specs.LinuxSeccomp) []uint64 {
	values := []uint64{0, 1, ^uint64(0)}
	for _, s := range p.Syscalls {
		for _, a := range s.Args {
			for _, v := range []uint64{a.Value, a.ValueTwo, a.Value | a.ValueTwo} {
				values = append(values, v, v+1, v-1, v|1<<32, v|1<<63, ^v)
			}
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

func TestDefaultProfilesAgainstLibseccomp(t *testing.T) {
	x86 := []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	arm := []specs.Arch{specs.ArchARM, specs.ArchAARCH64}
	onARM := []string{"arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"}
	for name, p := range profiles(t) {
		for _, m := range []struct {
			native specs.Arch
			p      *specs.LinuxSeccomp
		}{
			{specs.ArchX86_64, onlyKnown(p, x86)},
			{specs.ArchX86_64, onlyKnown(p, x86[:2])},
			{specs.ArchX86_64, onlyKnown(p, nil)},
			{specs.ArchAARCH64, onlyKnown(p, arm, onARM...)},
			{specs.ArchAARCH64, onlyKnown(p, nil)},
		} {
			t.Run(name+"/"+string(m.native), func(t *testing.T) {
				compareWhole(t, m.native, m.p)
			})
		}
	}
}

// compareWhole tries every number on every architecture, with every argument
// of interest in the first three places.
func compareWhole(t *testing.T, native specs.Arch, p *specs.LinuxSeccomp) {
	f, err := seccomp.CompileFor(native, p)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := newReference(native, p)
	if err != nil {
		t.Fatal(err)
	}
	values := around(p)
	calls := 0
	try := func(d seccomptest.Data) {
		got, _, err := seccomptest.Run(f.Program, &d)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := ref.run(&d)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("nr %#x arch %#x args %#x: got %#x; libseccomp has %#x\n%s", d.Nr, d.Arch, d.Args, got, want, seccomp.Disassemble(f.Program))
		}
		calls++
	}
	audits := []uint32{0, seccomptest.Audit[specs.ArchRISCV64]}
	for _, a := range append([]specs.Arch{native}, p.Architectures...) {
		audits = append(audits, seccomptest.Audit[a])
	}
	for _, audit := range audits {
		for _, base := range []uint32{0, 0x0f0000, 0x40000000, 0x80000000, 0xc0000000, 0xfffffc00} {
			for nr := base; nr-base < 1024; nr++ {
				for place := range 3 {
					for _, v := range values {
						d := seccomptest.Data{Nr: nr, Arch: audit}
						d.Args[place] = v
						try(d)
					}
				}
			}
		}
	}
	t.Logf("%d calls; %d instructions, libseccomp's %d", calls, len(f.Program), len(ref.program))
}

func BenchmarkDefaultProfile(b *testing.B) {
	p := profiles(b)["containerd-few"]
	b.Run("ibex", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := seccomp.CompileFor(specs.ArchX86_64, p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("libseccomp", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f, err := build(specs.ArchX86_64, p)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := export(f); err != nil {
				b.Fatal(err)
			}
			f.Release()
		}
	})
}
