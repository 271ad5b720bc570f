package cgroup2

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/pathsafe"
)

// Kinds of devices in struct bpf_cgroup_dev_ctx - include/uapi/linux/bpf.h.
const (
	bpfBlock = 1
	bpfChar  = 2
)

// deviceProgram compiles rules, of which the last that matches decides, for each
// kind of access on its own. The program is given
//
//	struct bpf_cgroup_dev_ctx { __u32 access_type; __u32 major; __u32 minor; }
//
// with access_type = access << 16 | type, and returns 1 to allow. It keeps the
// accesses that are still undecided in R3 and goes through the rules from the
// last to the first: a rule that allows takes its accesses away, and none left
// is yes; a rule that denies one that is left is no.
func deviceProgram(rules []cgroups.DeviceRule) asm.Instructions {
	p := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.RSh.Imm(asm.R3, 16),
		asm.And.Imm(asm.R3, int32(cgroups.AccessAll)),
		asm.And.Imm(asm.R2, 0xffff),
		asm.LoadMem(asm.R4, asm.R1, 4, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, 8, asm.Word),
	}
	for i := len(rules) - 1; i >= 0; i-- {
		r := rules[i]
		if r.Major > math.MaxInt32 || r.Minor > math.MaxInt32 {
			continue // dev_t has 12 and 20 bits for them: no device has these
		}
		next := fmt.Sprintf("rule%d", i)
		var body asm.Instructions
		if r.Type != 'a' {
			kind := int32(bpfChar)
			if r.Type == 'b' {
				kind = bpfBlock
			}
			body = append(body, asm.JNE.Imm(asm.R2, kind, next))
		}
		if r.Major != cgroups.AnyNumber {
			body = append(body, asm.JNE.Imm(asm.R4, int32(r.Major), next))
		}
		if r.Minor != cgroups.AnyNumber {
			body = append(body, asm.JNE.Imm(asm.R5, int32(r.Minor), next))
		}
		if r.Allow {
			body = append(body,
				asm.And.Imm(asm.R3, int32(cgroups.AccessAll&^r.Access)),
				asm.JEq.Imm(asm.R3, 0, "allow"))
		} else {
			body = append(body,
				asm.Mov.Reg(asm.R0, asm.R3),
				asm.And.Imm(asm.R0, int32(r.Access)),
				asm.JNE.Imm(asm.R0, 0, "deny"))
		}
		body[0] = body[0].WithSymbol("from" + next)
		p = append(p, body...)
		// The next rule begins here, reached by jumps and by falling through.
		p = append(p, asm.Mov.Reg(asm.R0, asm.R3).WithSymbol(next))
		if r.Type == 'a' && r.Major == cgroups.AnyNumber && r.Minor == cgroups.AnyNumber && r.Access == cgroups.AccessAll {
			break // decides everything: the verifier refuses instructions that cannot be reached
		}
	}
	return append(p,
		// Nothing matched. What asks for no access at all is allowed.
		asm.JEq.Imm(asm.R3, 0, "allow"),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("deny"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("allow"),
		asm.Return(),
	)
}

// setDevices puts a program for rules on the cgroup, in the place of the one
// that is there. The kernel replaces it at once, so no open meanwhile sees
// neither or both. The cgroup holds the program; no descriptor of it is kept.
//
// BPF_PROG_TYPE_CGROUP_DEVICE: Linux 4.15. BPF_F_REPLACE: Linux 5.6, commit
// 7dd68b3279f1.
func setDevices(dir *pathsafe.Dir, rules []cgroups.DeviceRule, fresh bool) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ibex_devices", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice,
		Instructions: deviceProgram(rules), License: "Apache-2.0",
	})
	if err != nil {
		return fmt.Errorf("load device program: %w", err)
	}
	defer func() { _ = prog.Close() }()
	var old []link.AttachedProgram
	if !fresh {
		if old, err = attached(dir); err != nil {
			return err
		}
	}
	attach := link.RawAttachProgramOptions{
		Target: dir.FD(), Program: prog, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI,
	}
	if len(old) != 1 {
		if err := link.RawAttachProgram(attach); err != nil {
			return fmt.Errorf("attach device program: %w", err)
		}
		return detach(dir, old)
	}
	before, err := ebpf.NewProgramFromID(old[0].ID)
	if err != nil {
		return fmt.Errorf("open device program %d: %w", old[0].ID, err)
	}
	defer func() { _ = before.Close() }()
	attach.Anchor = link.ReplaceProgram(before)
	if err := link.RawAttachProgram(attach); err != nil {
		return fmt.Errorf("replace device program: %w", err)
	}
	return nil
}

// attached lists the device programs of the cgroup itself.
//
// Linux 6.17 to 7.1 write the revision behind the structure of a caller that
// passes a shorter one; the library's has the field.
func attached(dir *pathsafe.Dir) ([]link.AttachedProgram, error) {
	r, err := link.QueryPrograms(link.QueryOptions{Target: dir.FD(), Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return nil, fmt.Errorf("list device programs: %w", err)
	}
	return r.Programs, nil
}

// detach removes the programs that were there before, more than one of them:
// not ours alone, then. All must allow an access for it to be allowed, so until
// the last is off the old rules hold as well.
func detach(dir *pathsafe.Dir, old []link.AttachedProgram) error {
	var errs []error
	for _, o := range old {
		prog, err := ebpf.NewProgramFromID(o.ID)
		if err == nil {
			err = link.RawDetachProgram(link.RawDetachProgramOptions{
				Target: dir.FD(), Program: prog, Attach: ebpf.AttachCGroupDevice,
			})
			_ = prog.Close()
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("detach device program %d: %w", o.ID, err))
		}
	}
	return errors.Join(errs...)
}
