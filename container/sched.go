package container

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
)

// schedPolicies and schedFlags: sched_setattr(2), <linux/sched.h>.
var (
	schedPolicies = map[specs.LinuxSchedulerPolicy]uint32{
		specs.SchedOther: 0, specs.SchedFIFO: 1, specs.SchedRR: 2, specs.SchedBatch: 3,
		specs.SchedISO: 4, specs.SchedIdle: 5, specs.SchedDeadline: 6,
	}
	schedFlags = map[specs.LinuxSchedulerFlag]uint64{
		specs.SchedFlagResetOnFork: 0x01, specs.SchedFlagReclaim: 0x02, specs.SchedFlagDLOverrun: 0x04,
		specs.SchedFlagKeepPolicy: 0x08, specs.SchedFlagKeepParams: 0x10,
		specs.SchedFlagUtilClampMin: 0x20, specs.SchedFlagUtilClampMax: 0x40,
	}
	ioClasses = map[specs.IOPriorityClass]int{
		specs.IOPRIO_CLASS_RT: 1, specs.IOPRIO_CLASS_BE: 2, specs.IOPRIO_CLASS_IDLE: 3,
	}
)

// scheduling fills in process.scheduler, ioPriority and, for an exec,
// execCPUAffinity.
func scheduling(out *exec.Process, p *specs.Process, isExec bool) (err error) {
	if p.Scheduler != nil {
		if out.Scheduler, err = schedAttr(p.Scheduler); err != nil {
			return err
		}
	}
	if p.IOPriority != nil {
		class, ok := ioClasses[p.IOPriority.Class]
		level := p.IOPriority.Priority
		if !ok || level < 0 || level > 7 {
			return invalid("process.ioPriority", "class %q, priority %d: want IOPRIO_CLASS_RT, _BE or _IDLE and 0 to 7", p.IOPriority.Class, level)
		}
		const classShift = 13 // ioprio_set(2), IOPRIO_PRIO_VALUE
		v := class<<classShift | level
		out.IOPriority = &v
	}
	out.Affinity = exec.AllCPUs
	if a := p.ExecCPUAffinity; a != nil && isExec {
		if out.BirthAffinity, err = cpuMask("process.execCPUAffinity.initial", a.Initial); err != nil {
			return err
		}
		if a.Initial != "" || a.Final != "" {
			if out.Affinity, err = cpuMask("process.execCPUAffinity.final", a.Final); err != nil {
				return err
			}
		}
	}
	return nil
}

func schedAttr(s *specs.Scheduler) (*unix.SchedAttr, error) {
	policy, ok := schedPolicies[s.Policy]
	if !ok {
		return nil, invalid("process.scheduler.policy", "unknown policy %q", s.Policy)
	}
	a := &unix.SchedAttr{
		Policy: policy, Nice: s.Nice, Priority: uint32(s.Priority),
		Runtime: s.Runtime, Deadline: s.Deadline, Period: s.Period,
	}
	for _, f := range s.Flags {
		bit, ok := schedFlags[f]
		if !ok {
			return nil, invalid("process.scheduler.flags", "unknown flag %q", f)
		}
		a.Flags |= bit
	}
	return a, nil
}

// maxCPU is far beyond CONFIG_NR_CPUS of any kernel; it bounds the mask.
const maxCPU = 1 << 16

// cpuMask turns a list such as "0-3,7" into a mask for sched_setaffinity(2);
// nil for an empty one.
func cpuMask(field, list string) (mask []byte, err error) {
	if mask, err = numberMask(list, maxCPU); err != nil {
		return nil, invalid(field, "%q: want CPUs such as 0-3,7", list)
	}
	return mask, nil
}

var errNumbers = errors.New("not a list of numbers")

// numberMask sets bit n%8 of byte n/8 for each number n of a list; all are below
// limit. An empty list gives nil.
func numberMask(list string, limit uint64) (mask []byte, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.ParseUint(lo, 10, 32)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(hi, 10, 32)
		}
		if err != nil || b < a || b >= limit {
			return nil, errNumbers
		}
		for ; a <= b; a++ {
			for len(mask) <= int(a/8) {
				mask = append(mask, 0)
			}
			mask[a/8] |= 1 << (a % 8)
		}
	}
	return mask, nil
}

// personalities: personality(2).
var personalities = map[specs.LinuxPersonalityDomain]uint32{specs.PerLinux: 0x0000, specs.PerLinux32: 0x0008}

func personality(l *specs.Linux) (*uint32, error) {
	if l.Personality == nil {
		return nil, nil
	}
	p, ok := personalities[l.Personality.Domain]
	if !ok || len(l.Personality.Flags) > 0 {
		return nil, invalid("linux.personality", "domain %q, flags %v: want LINUX or LINUX32 and no flags", l.Personality.Domain, fmt.Sprint(l.Personality.Flags))
	}
	return &p, nil
}
