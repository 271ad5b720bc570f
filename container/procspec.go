package container

import (
	"fmt"
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/seccomp"
)

// process turns the spec's process into what package exec runs. It is the same
// for a container's first process and for every later one.
func (c *Container) process(p *specs.Process) (*exec.Process, error) {
	// In a user namespace of its own, a process can have what we lack ourselves.
	mapped := private(c.spec, specs.UserNamespace)
	held := exec.Held()
	if mapped {
		held = ^uint64(0)
	}
	caps, err := capabilities(p.Capabilities, held)
	if err != nil {
		return nil, err
	}
	caps = c.control(caps)
	limits, err := rlimits(p.Rlimits)
	if err != nil {
		return nil, err
	}
	out := &exec.Process{
		Args: p.Args, Env: lastOfEach(p.Env), Cwd: p.Cwd,
		UID: p.User.UID, GID: p.User.GID, Groups: p.User.AdditionalGids,
		Umask: 0o022,
		Caps:  caps, AllCaps: mapped, NoNewPrivs: p.NoNewPrivileges, Rlimits: limits,
		Terminal: p.Terminal,
		Seccomp:  filter(c.seccomp),
	}
	if out.Labels, err = labels(p); err != nil {
		return nil, err
	}
	if out.Personality, err = personality(c.spec.Linux); err != nil {
		return nil, err
	}
	if out.MemoryPolicy, err = memoryPolicy(c.spec.Linux); err != nil {
		return nil, err
	}
	if err := scheduling(out, p, c.init.spec != nil); err != nil {
		return nil, err
	}
	if p.User.Umask != nil {
		out.Umask = *p.User.Umask
	}
	for _, id := range append([]uint32{p.User.UID, p.User.GID}, p.User.AdditionalGids...) {
		if id == math.MaxUint32 {
			return nil, invalid("process.user", "4294967295 is no id: it means \"leave unchanged\" to the kernel")
		}
	}
	if out.Umask > 0o777 {
		return nil, invalid("process.user.umask", "%#o", out.Umask)
	}
	if p.OOMScoreAdj != nil {
		if *p.OOMScoreAdj < -1000 || *p.OOMScoreAdj > 1000 {
			return nil, invalid("process.oomScoreAdj", "%d: want -1000 to 1000", *p.OOMScoreAdj)
		}
		out.OOMScoreAdj = p.OOMScoreAdj
	}
	if err := c.checkMapped(out); err != nil {
		return nil, err
	}
	if !c.opts.NoNewKeyring {
		out.Keyring = "_ses." + c.opts.ID
	}
	return out, nil
}

func filter(f *seccomp.Filter) *exec.Filter {
	if f == nil {
		return nil
	}
	return &exec.Filter{Program: f.Program, Flags: f.Flags}
}

// capabilities turns the five lists into masks. An unknown name is an error,
// and so is one that this process does not have to give: the container would
// start with less than was asked for.
func capabilities(l *specs.LinuxCapabilities, held uint64) (c exec.Caps, err error) {
	if l == nil {
		return c, nil
	}
	for _, set := range []struct {
		name  string
		names []string
		to    *uint64
	}{
		{"bounding", l.Bounding, &c.Bounding},
		{"effective", l.Effective, &c.Effective},
		{"permitted", l.Permitted, &c.Permitted},
		{"inheritable", l.Inheritable, &c.Inheritable},
		{"ambient", l.Ambient, &c.Ambient},
	} {
		for _, n := range set.names {
			bit, ok := exec.CapBit(n)
			if !ok {
				return c, invalid("process.capabilities."+set.name, "unknown capability %q", n)
			}
			*set.to |= 1 << bit
		}
		if missing := *set.to &^ held; missing != 0 {
			return c, invalid("process.capabilities."+set.name, "%s: not held by the runtime itself", exec.CapSetString(missing))
		}
	}
	if bad := c.Effective &^ c.Permitted; bad != 0 {
		return c, invalid("process.capabilities.effective", "%s: not in the permitted set", exec.CapSetString(bad))
	}
	if bad := c.Ambient &^ (c.Permitted & c.Inheritable); bad != 0 {
		return c, invalid("process.capabilities.ambient", "%s: not in both the permitted and the inheritable set", exec.CapSetString(bad))
	}
	return c, nil
}

// rlimitNames: getrlimit(2).
var rlimitNames = map[string]int{
	"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
	"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
	"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
	"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
	"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
	"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
}

func rlimits(in []specs.POSIXRlimit) (out []exec.Rlimit, err error) {
	for i, l := range in {
		res, ok := rlimitNames[l.Type]
		field := fmt.Sprintf("process.rlimits[%d]", i)
		switch {
		case !ok:
			return nil, invalid(field+".type", "unknown limit %q", l.Type)
		case l.Soft > l.Hard:
			return nil, invalid(field, "%s: soft limit %d above hard limit %d", l.Type, l.Soft, l.Hard)
		case slices.ContainsFunc(out, func(o exec.Rlimit) bool { return o.Resource == res }):
			return nil, invalid(field, "%s: named twice", l.Type)
		}
		out = append(out, exec.Rlimit{Resource: res, Soft: l.Soft, Max: l.Hard})
	}
	return out, nil
}
