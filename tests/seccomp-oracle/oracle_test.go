//go:build cgo && seccomp

package oracle

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

var machines = map[specs.Arch][][]specs.Arch{
	specs.ArchX86_64: {
		nil,
		{specs.ArchX86_64, specs.ArchX86},
		{specs.ArchX86_64, specs.ArchX86, specs.ArchX32},
		{specs.ArchX32},
		{specs.ArchX86, specs.ArchMIPSEL, specs.ArchPPC64LE},
	},
	specs.ArchAARCH64: {
		nil,
		{specs.ArchARM, specs.ArchAARCH64},
		{specs.ArchAARCH64, specs.ArchARM, specs.ArchRISCV64, specs.ArchMIPSEL64},
	},
}

// known are the calls that this libseccomp has a name for: it is as old as
// the distribution, the table here is not.
func known(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := libseccomp.GetSyscallFromName(name)
		return err != nil
	})
}

func TestSystemCallNumbersAreLibseccomps(t *testing.T) {
	for a, scmp := range scmpArchs {
		compared := 0
		for _, of := range []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchARM, specs.ArchAARCH64, a} {
			for _, name := range known(seccomp.Names(of)) {
				got, ok := seccomp.Number(a, name)
				want, err := libseccomp.GetSyscallFromNameByArch(name, scmp)
				if err != nil {
					continue
				}
				if want < 0 {
					// A pseudo number: not on this architecture, or multiplexed.
					continue
				}
				compared++
				if !ok || got != uint32(want) {
					t.Errorf("%s on %s: %d, %v; libseccomp has %d", name, a, got, ok, want)
				}
			}
		}
		t.Logf("%s: %d names", a, compared)
	}
}

type counts struct {
	profiles, calls, bothRefuse, oursRefuses, theirsRefuses int
	theyContradict, conflict                                int
}

func (c *counts) compare(t *testing.T, native specs.Arch, p *specs.LinuxSeccomp, inputs []seccomptest.Data, exact bool) {
	t.Helper()
	text := func() string {
		b, _ := json.Marshal(p)
		return string(b)
	}
	c.profiles++
	f, err := seccomp.CompileFor(native, p)
	ref, refErr := newReference(native, p)
	switch {
	case err != nil && refErr != nil:
		c.bothRefuse++
		return
	case err != nil:
		c.oursRefuses++
		if exact {
			t.Fatalf("refused: %v\n%s", err, text())
		}
		return
	case refErr != nil:
		// It also looks for contradictions in rules for calls that the
		// architecture does not have, by pseudo numbers.
		c.theirsRefuses++
		return
	}
	m := seccomptest.NewModel(native, p)
	for i := range inputs {
		d := &inputs[i]
		c.calls++
		got, _, err := seccomptest.Run(f.Program, d)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := ref.run(d)
		if err != nil {
			t.Fatal(err)
		}
		if got == want {
			continue
		}
		allowed := m.Verdicts(d)
		switch {
		case exact || !slices.Contains(allowed, got):
			t.Fatalf("%s: nr %#x arch %#x args %#x: got %#x; libseccomp has %#x; the rules say %#x\n%s\n%s", native,
				d.Nr, d.Arch, d.Args, got, want, allowed, text(), seccomp.Disassemble(f.Program))
		case !slices.Contains(allowed, want):
			c.theyContradict++
		default:
			c.conflict++
		}
	}
}

func TestRandomProfilesAgainstLibseccomp(t *testing.T) {
	profiles := 10000
	if testing.Short() {
		profiles = 1200
	}
	// The exact classes keep clear of what libseccomp 2.5.4 is known to get
	// wrong: it does not load the number of the call where the rule it puts
	// first is for a call that the architecture has not; after an inequality
	// whose value has a low half it compares the low half with the next rule's
	// high half; and branches of a rule share what later rules add to one,
	// which even makes it run in circles for ever (see tame).
	for _, class := range []struct {
		name   string
		exact  bool
		config func(r *seccomptest.Random)
	}{
		{"equality of one argument", true, func(r *seccomptest.Random) { r.Equal, r.Single, r.Calls = true, true, everywhere(r) }},
		{"equality", true, func(r *seccomptest.Random) { r.Equal, r.Calls = true, everywhere(r) }},
		{"one small argument and one action", true, func(r *seccomptest.Random) {
			r.Single, r.OneVerb, r.Small, r.Calls = true, true, true, everywhere(r)
		}},
		{"one argument", false, func(r *seccomptest.Random) { r.Single = true }},
		{"one action", false, func(r *seccomptest.Random) { r.OneVerb = true }},
		{"anything", false, func(r *seccomptest.Random) {}},
	} {
		t.Run(class.name, func(t *testing.T) {
			var c counts
			for native, lists := range machines {
				calls := append(known(seccomp.Names(native)), "socketcall", "ipc", "waitpid", "set_tls")
				for seed := range uint64(profiles / 12) {
					r := &seccomptest.Random{Rand: rand.New(rand.NewPCG(seed, 2)), Archs: lists, Calls: calls}
					class.config(r)
					p := tame(r.Profile())
					c.compare(t, native, p, r.Inputs(p, native, 60), class.exact)
				}
			}
			t.Logf("%+v", c)
			// Every difference is libseccomp's: the rules justify what is here.
			// They stay rare, or the comparison would compare nothing.
			if 100*(c.theyContradict+c.conflict) > c.calls || 100*c.oursRefuses > c.profiles {
				t.Errorf("too many differences: %+v", c)
			}
		})
	}
}

// everywhere are the calls that all architectures have.
func everywhere(r *seccomptest.Random) []string {
	return slices.DeleteFunc(slices.Clone(r.Calls), func(name string) bool {
		for _, list := range r.Archs {
			for _, a := range list {
				if _, ok := seccomp.Number(a, name); !ok {
					return true
				}
			}
		}
		return false
	})
}

// tame makes equalities of the inequalities that come before a rule's last
// argument: libseccomp 2.5.4 does not end on some profiles that have several
// such rules for one call.
func tame(p *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	for _, s := range p.Syscalls {
		for i := range s.Args {
			a := &s.Args[i]
			last := !slices.ContainsFunc(s.Args, func(b specs.LinuxSeccompArg) bool { return b.Index > a.Index })
			if !last && a.Op != specs.OpMaskedEqual {
				a.Op = specs.OpEqualTo
			}
		}
	}
	return p
}
