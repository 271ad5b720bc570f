package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	"github.com/ibex-run/ibex/internal/probe"
	"github.com/ibex-run/ibex/pathsafe"
)

// examineKernel tries what every container needs.
func examineKernel() []finding {
	const area = "kernel"
	var u unix.Utsname
	all := []finding{{Area: area, Check: "release", State: stateOK, Needed: "everything"}}
	if err := unix.Uname(&u); err == nil {
		all[0].Detail = unix.ByteSliceToString(u.Release[:]) + ", the first that has everything is " + pathsafe.KernelFloor
	}
	for _, list := range []struct {
		features []*probe.Feature
		without  string
		needed   string
	}{
		{pathsafe.Required(), stateMissing, "everything"},
		{pathsafe.Optional(), stateNote, "checks that a reused mount id cannot pass"},
	} {
		for _, f := range list.features {
			x := finding{Area: area, Check: f.Name, State: stateOK, Needed: list.needed, Detail: fmt.Sprintf("Linux %d.%d", f.Major, f.Minor)}
			var missing *probe.MissingError
			switch err := f.Check(); {
			case errors.As(err, &missing):
				x.State, x.Detail = list.without, missing.Error()
			case err != nil:
				x.State, x.Detail = stateNote, err.Error()
			}
			all = append(all, x)
		}
	}
	return all
}

// controllers are those that limits need, with what needs them.
var controllers = []struct{ name, v2, needed string }{
	{"cpu", "cpu", "CPU shares and quotas"},
	{"cpuset", "cpuset", "CPU and memory pinning"},
	{"memory", "memory", "memory limits and OOM events"},
	{"pids", "pids", "limits of the number of processes"},
	{"blkio", "io", "block I/O weights and limits"},
	{"hugetlb", "hugetlb", "limits of huge pages"},
	{"devices", "", "device rules"},
	{"freezer", "", "pause"},
}

func examineCgroups() []finding {
	const area = "cgroups"
	l, err := cgroups.Detect()
	if err != nil {
		return []finding{{Area: area, Check: "mode", State: stateMissing, Detail: err.Error(), Needed: "everything"}}
	}
	defer l.Close()
	mode := map[cgroups.Mode]string{cgroups.V1: "version 1", cgroups.Hybrid: "version 1, and version 2 without controllers (hybrid)", cgroups.V2: "version 2"}[l.Mode]
	all := []finding{{Area: area, Check: "mode", State: stateOK, Detail: mode}}
	have := map[string]bool{}
	for _, h := range l.V1 {
		for _, c := range h.Controllers {
			have[c] = true
		}
	}
	if l.Mode == cgroups.V2 {
		buf := make([]byte, 4096)
		if n, err := l.Unified.Read(pathsafe.MustName("cgroup.controllers"), buf); err == nil {
			for _, c := range strings.Fields(string(buf[:n])) {
				have[c] = true
			}
		}
	}
	for _, c := range controllers {
		name := c.name
		if l.Mode == cgroups.V2 {
			if name = c.v2; name == "" {
				continue // part of the kernel there
			}
		}
		x := finding{Area: area, Check: "controller " + name, State: stateOK, Needed: c.needed}
		if !have[name] {
			x.State = stateNote
			x.Detail = "not there"
		}
		all = append(all, x)
	}
	return all
}

func examineSecurity() []finding {
	const area = "security"
	held, whole := capabilities()
	all := []finding{{Area: area, Check: "capabilities", State: stateOK, Detail: "all of them", Needed: "containers that ask for them"}}
	if missing := whole &^ held; missing != 0 {
		all[0].State, all[0].Detail = stateNote, fmt.Sprintf("this process lacks %#x", missing)
	}
	actions, ok, _ := readSmall("/proc/sys/kernel/seccomp/actions_avail")
	x := finding{Area: area, Check: "seccomp", State: stateOK, Detail: strings.TrimSpace(actions), Needed: "containers with a seccomp profile"}
	if !ok {
		x.State, x.Detail = stateNote, "not there"
	} else if !slices.Contains(strings.Fields(actions), "user_notif") {
		x.State, x.Needed = stateNote, "SCMP_ACT_NOTIFY"
	}
	all = append(all, x)
	modules, ok, _ := readSmall("/sys/kernel/security/lsm")
	for _, m := range []struct{ name, field string }{{"apparmor", "process.apparmorProfile"}, {"selinux", "process.selinuxLabel"}} {
		x := finding{Area: area, Check: m.name, State: stateOK, Needed: m.field}
		if !ok || !slices.Contains(strings.Split(strings.TrimSpace(modules), ","), m.name) {
			x.State, x.Detail = stateNote, "not enabled"
		}
		all = append(all, x)
	}
	x = finding{Area: area, Check: "IMA", State: stateOK, Detail: "no measurements: nothing slows execve down"}
	if n, ok, _ := readSmall("/sys/kernel/security/ima/runtime_measurements_count"); ok && strings.TrimSpace(n) != "0" && strings.TrimSpace(n) != "1" {
		x.State, x.Detail = stateNote, strings.TrimSpace(n)+" measurements: a policy is active, and each new program costs its measurement"
	}
	return append(all, x)
}

// capabilities gives the bounding set of this process and the set of all that the
// kernel knows (PR_CAPBSET_READ: EINVAL for an unknown one).
func capabilities() (held, whole uint64) {
	for c := range 64 {
		v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break
		}
		whole |= 1 << c
		if v == 1 {
			held |= 1 << c
		}
	}
	return held, whole
}

func examineUsers() []finding {
	const area = "user namespaces and the rest"
	x := finding{Area: area, Check: "user namespaces", State: stateOK, Needed: "containers with a user namespace, such as pods with hostUsers: false"}
	n, ok, _ := readSmall("/proc/sys/user/max_user_namespaces")
	switch n = strings.TrimSpace(n); {
	case !ok:
		x.State, x.Detail = stateNote, "not in this kernel"
	case n == "0":
		x.State, x.Detail = stateNote, "user.max_user_namespaces is 0"
	default:
		x.Detail = "at most " + n
	}
	t := finding{Area: area, Check: "time namespaces", State: stateOK, Needed: "linux.timeOffsets"}
	if _, err := os.Stat("/proc/self/ns/time"); err != nil {
		t.State, t.Detail = stateNote, "not in this kernel"
	}
	root := finding{Area: area, Check: "root", State: stateOK, Needed: "everything"}
	if os.Geteuid() != 0 {
		root.State, root.Detail = stateMissing, "run as root; some of the above cannot be told without"
	}
	return []finding{x, t, root}
}
