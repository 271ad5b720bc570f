package security

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/ktest"
)

// mask is a list of capabilities as /proc/PID/status prints it.
func mask(names []string) (m uint64) {
	for _, n := range names {
		bit, ok := exec.CapBit(n)
		if !ok {
			panic("unknown capability " + n)
		}
		m |= 1 << bit
	}
	return m
}

// An id that was too large, or a name in the place of a number, once made a
// process root (CVE-2016-3697, CVE-2024-40635, CVE-2026-46680, CVE-2026-30892).
func TestTheIdsOfAProcessAreTheSpecsToTheLastBit(t *testing.T) {
	b := newBox(t, "/bin/sleep", "1000")
	c := b.start()
	for _, id := range []uint32{0, 1, 65534, 1 << 31, math.MaxUint32 - 1} {
		groups := []uint32{id, 7}
		out, _, err := b.exec(c, func(s *specs.Process) {
			s.User = specs.User{UID: id, GID: id, AdditionalGids: groups}
		}, "/bin/grep", "^[UG].*[ids]:", "/proc/self/status")
		want := fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", id)
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("id %d: %q, %v", id, out, err)
		}
	}
	for _, u := range []specs.User{{UID: math.MaxUint32}, {GID: math.MaxUint32}, {AdditionalGids: []uint32{math.MaxUint32}}} {
		if _, _, err := b.exec(c, func(s *specs.Process) { s.User = u }, "/bin/true"); err == nil {
			t.Errorf("%+v was taken", u)
		}
		b2 := newBox(t, "/bin/true")
		b2.spec.Process.User = u
		if _, _, err := b2.run(); err == nil {
			t.Errorf("%+v was taken at create", u)
		}
	}
}

// Groups of the runtime itself were left over, or the process's own forgotten
// (CVE-2022-36109, CVE-2023-25173, CVE-2022-2995).
func TestTheGroupsOfAProcessAreTheSpecsAndNoOthers(t *testing.T) {
	own, err := syscall.Getgroups()
	must(t, err)
	must(t, syscall.Setgroups([]int{4242, 4243}))
	defer syscall.Setgroups(own) //nolint:errcheck // nothing else here depends on them
	for _, userns := range []bool{false, true} {
		b := newBox(t, "/bin/sleep", "1000")
		if userns {
			b.userns()
		}
		c := b.start()
		for _, groups := range [][]uint32{nil, {0}, {5, 20, 30}} {
			out, _, err := b.exec(c, func(s *specs.Process) { s.User = specs.User{GID: 9, AdditionalGids: groups} }, "/bin/grep", "Groups", "/proc/self/status")
			if want := strings.Trim(fmt.Sprint(groups), "[]"); err != nil || strings.TrimSpace(strings.TrimPrefix(out, "Groups:")) != want {
				t.Errorf("userns %v: %q, %v, want %q", userns, out, err, want)
			}
		}
	}
}

// Capability sets that were not those asked for: ambient ones that survived a
// change of user (CVE-2016-8867), an inheritable set that was not empty
// (CVE-2022-24769, CVE-2022-29162, CVE-2022-27650, CVE-2025-27612), and an exec
// with other rules than the first process.
func TestTheCapabilitySetsAreTheSpecsForEveryProcess(t *testing.T) {
	some, few := []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW"}, []string{"CAP_KILL"}
	for name, l := range map[string]*specs.LinuxCapabilities{
		"none":      {},
		"absent":    nil,
		"bounding":  {Bounding: some},
		"permitted": {Bounding: some, Permitted: few},
		"usual":     {Bounding: some, Permitted: some, Effective: few},
		"ambient":   {Bounding: some, Permitted: some, Effective: some, Inheritable: some, Ambient: some},
	} {
		for _, uid := range []uint32{0, 1000} {
			for _, nnp := range []bool{false, true} {
				b := newBox(t, "/bin/grep", "^Cap", "/proc/self/status")
				b.spec.Process.Capabilities, b.spec.Process.User.UID, b.spec.Process.NoNewPrivileges = l, uid, nnp
				first, _, err := b.run()
				must(t, err)
				b2 := newBox(t, "/bin/sleep", "1000")
				c := b2.start()
				later, _, err := b2.exec(c, func(s *specs.Process) { *s = *b.spec.Process }, "/bin/grep", "^Cap", "/proc/self/status")
				must(t, err)
				if want := capStatus(l, uid, nnp); first != want || later != want {
					t.Errorf("%s, uid %d, no_new_privs %v: want\n%sfirst process\n%sexec\n%s", name, uid, nnp, want, first, later)
				}
				b2.remove(c)
			}
		}
	}
	for _, bad := range []string{"CAP_NONSENSE", "", "ALL", "CAP_CHOWN\x00"} {
		b := newBox(t, "/bin/true")
		b.spec.Process.Capabilities.Bounding = []string{bad}
		if _, _, err := b.run(); err == nil {
			t.Errorf("capability %q was taken", bad)
		}
	}
}

// capStatus is what the kernel makes of the sets at execve of an ordinary file:
// capabilities(7), "Transformation of capabilities during execve()".
func capStatus(l *specs.LinuxCapabilities, uid uint32, nnp bool) string {
	if l == nil {
		l = &specs.LinuxCapabilities{}
	}
	inh, bnd, amb := mask(l.Inheritable), mask(l.Bounding), mask(l.Ambient)
	prm, eff := amb, amb
	if uid == 0 { // root's file capabilities are all
		prm = inh | bnd
		if nnp { // nothing is gained
			prm &= mask(l.Permitted)
		}
		eff = prm
	}
	return fmt.Sprintf("CapInh:\t%016x\nCapPrm:\t%016x\nCapEff:\t%016x\nCapBnd:\t%016x\nCapAmb:\t%016x\n", inh, prm, eff, bnd, amb)
}

// The user's home directory is looked up in the image's /etc/passwd, which may be
// anything: runtimes waited for a FIFO there for ever or read it into memory
// whole (CVE-2025-4437, CVE-2026-47262).
func TestAHostilePasswdFileCostsNothing(t *testing.T) {
	for _, what := range []string{"|", "c 1 5", "-> /dev/zero", "-> /proc/kmsg", "-> /etc/passwd", "/", "-> /proc/self/mem"} {
		t.Run(strings.ReplaceAll(what, "/", "|"), func(t *testing.T) {
			b := newBox(t, "/bin/sleep", "1000")
			if what == "/" {
				ktest.Tree(t, b.root, "etc/passwd/")
			} else {
				ktest.Tree(t, b.root, "etc/passwd "+what)
			}
			begin := time.Now()
			c := b.start()
			if out, _, err := b.exec(c, nil, "/bin/sh", "-c", "echo $HOME"); err != nil || out != "/\n" {
				t.Errorf("home %q, %v", out, err)
			}
			if took := time.Since(begin); took > 5*time.Second*ktest.Slow() {
				t.Errorf("it took %v", took)
			}
		})
	}
	t.Run("sparse", func(t *testing.T) {
		b := newBox(t, "/bin/true")
		ktest.Tree(t, b.root, "etc/passwd = root:x:0:0:root:/root:/bin/sh")
		must(t, truncate(filepath.Join(b.root, "etc/passwd"), 4<<30))
		if _, _, err := b.run(); err != nil {
			t.Error(err)
		}
	})
}
