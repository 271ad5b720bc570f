package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

// state is what "probe state" prints.
type state struct {
	Args, Env            []string
	Cwd                  string
	Hostname, Domainname string
	UID, EUID, GID, EGID int
	Groups               []int
	Umask                int
	NoNewPrivs           int
	OOMScoreAdj          string
	SID, PGID, PPID      int
	Priority             int
	Personality          uintptr
	Status               map[string]string
	Limits               map[string][2]uint64
	Namespaces           map[string]string
	Cgroup, Mountinfo    string
	Affinity             int
	SecureBits           int
	PDeathSig            int
	Dumpable             int
	TimerSlackNS         int
	Keyring              string
	StdinIsATerminal     bool
	ControllingTTY       bool
	StandardFileOwner    [3]uint32
}

func parseState(t *testing.T, text string) (s state) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("state %q: %v", short(text), err)
	}
	return s
}

// bothStates gives the state of an init with the spec and of an exec with the
// same process.
func bothStates(t *testing.T, opts ...oci.SpecOpts) map[string]state {
	t.Helper()
	b := startBox(t, boxSpec{args: []string{"sh", "-c", "probe state; exec sleep 100000"}, spec: opts})
	b.out.waitFor(t, "\n")
	return map[string]state{
		"init": parseState(t, b.out.String()),
		"exec": parseState(t, b.ok("probe", "state")),
	}
}

// each runs a check for init and exec.
func each(t *testing.T, states map[string]state, check func(t *testing.T, s state)) {
	t.Helper()
	for _, who := range []string{"init", "exec"} {
		t.Run(who, func(t *testing.T) { check(t, states[who]) })
	}
}

func want[T comparable](t *testing.T, what string, have, want T) {
	t.Helper()
	if have != want {
		t.Errorf("%s: %v, want %v", what, have, want)
	}
}

func TestTheDefaultSpecGivesAPlainProcess(t *testing.T) {
	t.Parallel()
	each(t, bothStates(t), func(t *testing.T, s state) {
		want(t, "uid", s.UID, 0)
		want(t, "gid", s.GID, 0)
		want(t, "umask", s.Umask, 0o22)
		want(t, "no_new_privs", s.NoNewPrivs, 1)
		want(t, "cwd", s.Cwd, "/")
		want(t, "securebits", s.SecureBits, 0)
		want(t, "blocked signals", s.Status["SigBlk"], "0000000000000000")
		want(t, "ignored signals", s.Status["SigIgn"], "0000000000000000")
		want(t, "effective capabilities", s.Status["CapEff"], "00000000a80425fb")
		want(t, "permitted capabilities", s.Status["CapPrm"], "00000000a80425fb")
		want(t, "bounding capabilities", s.Status["CapBnd"], "00000000a80425fb")
		want(t, "inheritable capabilities", s.Status["CapInh"], "0000000000000000")
		want(t, "ambient capabilities", s.Status["CapAmb"], "0000000000000000")
		want(t, "hard limit of files", s.Limits["NOFILE"][1], 1024)
		want(t, "terminal", s.StdinIsATerminal, false)
		want(t, "controlling terminal", s.ControllingTTY, false)
		want(t, "timer slack", s.TimerSlackNS, 50000)
		want(t, "priority", s.Priority, 20) // 20 minus the nice value
		want(t, "CPUs", s.Affinity, cpus())
		want(t, "seccomp", s.Status["Seccomp"], "0")
		if path := slices.Index(s.Env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"); path < 0 {
			t.Errorf("environment %q", s.Env)
		}
		for _, e := range s.Env {
			if strings.HasPrefix(e, ktest.EnvName) || strings.HasPrefix(e, "TTRPC_ADDRESS") || strings.HasPrefix(e, "GRPC_ADDRESS") {
				t.Errorf("the shim's %q", e)
			}
		}
	})
}

func TestUserGroupsUmaskAndHome(t *testing.T) {
	t.Parallel()
	states := bothStates(t, editProcess(func(p *specs.Process) {
		p.User = specs.User{UID: 1000, GID: 2000, AdditionalGids: []uint32{3000, 4000}, Umask: ptr[uint32](0o77)}
	})...)
	each(t, states, func(t *testing.T, s state) {
		want(t, "uids", fmt.Sprintf("%d %d %s", s.UID, s.EUID, s.Status["Uid"]), "1000 1000 1000\t1000\t1000\t1000")
		want(t, "gids", fmt.Sprintf("%d %d %s", s.GID, s.EGID, s.Status["Gid"]), "2000 2000 2000\t2000\t2000\t2000")
		slices.Sort(s.Groups)
		want(t, "groups", fmt.Sprint(s.Groups), "[3000 4000]")
		want(t, "umask", s.Umask, 0o77)
		// Without ambient capabilities another user has none.
		want(t, "effective capabilities", s.Status["CapEff"], "0000000000000000")
		want(t, "permitted capabilities", s.Status["CapPrm"], "0000000000000000")
		want(t, "bounding capabilities", s.Status["CapBnd"], "00000000a80425fb")
		if !slices.Contains(s.Env, "HOME=/home/user") {
			t.Errorf("environment %q", s.Env)
		}
		for i, uid := range s.StandardFileOwner {
			if uid != 1000 && uid != 0 {
				t.Errorf("descriptor %d belongs to %d", i, uid)
			}
		}
	})
}

func TestTheFiveCapabilitySets(t *testing.T) {
	t.Parallel()
	states := bothStates(t, editProcess(func(p *specs.Process) {
		p.User = specs.User{UID: 1000, GID: 1000}
		p.Capabilities = &specs.LinuxCapabilities{
			Bounding:    []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW"},
			Permitted:   []string{"CAP_CHOWN", "CAP_KILL"},
			Effective:   []string{"CAP_CHOWN"},
			Inheritable: []string{"CAP_CHOWN", "CAP_KILL"},
			Ambient:     []string{"CAP_KILL"},
		}
	})...)
	each(t, states, func(t *testing.T, s state) {
		// execve of a plain file by another user: what is ambient is permitted
		// and effective. capabilities(7)
		want(t, "ambient", s.Status["CapAmb"], "0000000000000020")
		want(t, "effective", s.Status["CapEff"], "0000000000000020")
		want(t, "permitted", s.Status["CapPrm"], "0000000000000020")
		want(t, "inheritable", s.Status["CapInh"], "0000000000000021")
		want(t, "bounding", s.Status["CapBnd"], "0000000000002021")
	})
}

func TestNoCapabilitiesAtAll(t *testing.T) {
	t.Parallel()
	states := bothStates(t, editProcess(func(p *specs.Process) { p.Capabilities = &specs.LinuxCapabilities{} })...)
	each(t, states, func(t *testing.T, s state) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			want(t, set, s.Status[set], "0000000000000000")
		}
	})
}

func TestNewPrivilegesMayBeAllowed(t *testing.T) {
	t.Parallel()
	states := bothStates(t, editProcess(func(p *specs.Process) { p.NoNewPrivileges = false })...)
	each(t, states, func(t *testing.T, s state) { want(t, "no_new_privs", s.NoNewPrivs, 0) })
}

func TestEveryResourceLimit(t *testing.T) {
	t.Parallel()
	set := map[string][2]uint64{ // small enough for a caller without CAP_SYS_RESOURCE
		"CORE": {0, 0}, "CPU": {1000, 2000}, "DATA": {1 << 40, 1 << 41}, "FSIZE": {1 << 30, 1 << 31}, "LOCKS": {10, 20},
		"MEMLOCK": {65536, 65536}, "MSGQUEUE": {1000, 2000}, "NICE": {0, 0}, "NOFILE": {512, 512}, "NPROC": {5000, 6000},
		"RSS": {1 << 30, 1 << 31}, "RTPRIO": {0, 0}, "RTTIME": {1 << 20, 1 << 21}, "SIGPENDING": {100, 200},
		"STACK": {4 << 20, 8 << 20}, "AS": {1 << 41, 1 << 42},
	}
	states := bothStates(t, editProcess(func(p *specs.Process) {
		p.Rlimits = nil
		for name, l := range set {
			p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_" + name, Soft: l[0], Hard: l[1]})
		}
	})...)
	each(t, states, func(t *testing.T, s state) {
		for name, l := range set {
			want(t, name, s.Limits[name], l)
		}
	})
}

// opencontainers/runc#4195, containerd/containerd#8249: the Go runtime raises
// the soft limit of its own process.
func TestTheSoftLimitOfFilesIsTheSpecs(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "ulimit -Sn; ulimit -Hn; exec sleep 100000"},
		spec: editProcess(func(p *specs.Process) {
			p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 1000, Hard: 4096}}
		}),
	})
	b.out.waitFor(t, "1000\n4096\n")
	for range 10 {
		if out := b.ok("sh", "-c", "ulimit -Sn; ulimit -Hn"); out != "1000\n4096\n" {
			t.Fatalf("got %q", out)
		}
	}
	b.stop()
}

// opencontainers/runc#5082: the limit hit the runtime's own set-up.
func TestATinyLimitOfFiles(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "its set-up runs under the limit")
	for _, n := range []uint64{3, 5} {
		b := startBox(t, boxSpec{
			args: []string{"sh", "-c", "ulimit -n; exec sleep 100000"},
			spec: editProcess(func(p *specs.Process) {
				p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: n, Hard: n}}
			}),
		})
		b.out.waitFor(t, fmt.Sprintf("%d\n", n))
		if out := b.ok("sh", "-c", "ulimit -n"); out != fmt.Sprintf("%d\n", n) {
			t.Errorf("exec: %q", out)
		}
		b.stop()
	}
}

func TestHostnameDomainnameAndSysctls(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "probe state; exec sleep 100000"},
		spec: edit(func(s *specs.Spec) {
			s.Hostname, s.Domainname = "ibex-host", "ibex-domain"
			s.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel.msgmax": "12345", "net.ipv4.ping_group_range": "0 7"}
		}),
	})
	b.out.waitFor(t, "\n")
	s := parseState(t, b.out.String())
	want(t, "hostname", s.Hostname, "ibex-host")
	want(t, "domainname", s.Domainname, "ibex-domain")
	want(t, "hostname of an exec", b.ok("hostname"), "ibex-host\n")
	want(t, "sysctls", b.ok("cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/msgmax", "/proc/sys/net/ipv4/ping_group_range"),
		"1\n12345\n0\t7\n")
	b.stop()
}

// moby/moby#42891
func TestTheOOMScoreIsTheSpecs(t *testing.T) {
	t.Parallel()
	states := bothStates(t, editProcess(func(p *specs.Process) { p.OOMScoreAdj = ptr(321) })...)
	each(t, states, func(t *testing.T, s state) { want(t, "oom_score_adj", s.OOMScoreAdj, "321") })
}

func TestArgumentsAndEnvironmentArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	args := []string{"probe", "state"}
	env := []string{"A=1", "EMPTY=", "SPACE= a b ", "UTF=ä", "NL=a\nb", "PATH=/bin", "A=2"}
	b, _ := runBox(t, boxSpec{args: args, spec: editProcess(func(p *specs.Process) { p.Env = env; p.Cwd = "/home/user" })})
	s := parseState(t, b.out.String())
	want(t, "args", fmt.Sprintf("%q", s.Args), fmt.Sprintf("%q", args))
	want(t, "cwd", s.Cwd, "/home/user")
	for _, e := range []string{"EMPTY=", "SPACE= a b ", "UTF=ä", "NL=a\nb", "PATH=/bin"} {
		if !slices.Contains(s.Env, e) {
			t.Errorf("no %q in %q", e, s.Env)
		}
	}
}

func TestAMissingWorkingDirectoryIsMade(t *testing.T) {
	t.Parallel()
	b, code := runBox(t, boxSpec{args: []string{"pwd"}, spec: editProcess(func(p *specs.Process) { p.Cwd = "/made/on/the/way" })})
	if code != 0 || b.out.String() != "/made/on/the/way\n" {
		t.Errorf("code %d, %q %q", code, b.out, b.err)
	}
}

func TestNamespacesAreNewOnesOrTheHosts(t *testing.T) {
	t.Parallel()
	mine := func(ns string) string { return readLink("/proc/self/ns/" + ns) }
	each(t, bothStates(t), func(t *testing.T, s state) {
		for _, ns := range []string{"pid", "net", "mnt", "ipc", "uts"} {
			if s.Namespaces[ns] == mine(ns) || s.Namespaces[ns] == "" {
				t.Errorf("%s is %q, the host's %q", ns, s.Namespaces[ns], mine(ns))
			}
		}
		for _, ns := range []string{"user", "time"} {
			want(t, ns, s.Namespaces[ns], mine(ns))
		}
	})
	states := bothStates(t, oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostNamespace(specs.IPCNamespace),
		oci.WithHostNamespace(specs.UTSNamespace), oci.WithHostNamespace(specs.PIDNamespace))
	each(t, states, func(t *testing.T, s state) {
		for _, ns := range []string{"pid", "net", "ipc", "uts"} {
			want(t, ns, s.Namespaces[ns], mine(ns))
		}
	})
}

func TestACgroupNamespaceHidesThePath(t *testing.T) {
	t.Parallel()
	states := bothStates(t, withNamespace(specs.CgroupNamespace, ""))
	each(t, states, func(t *testing.T, s state) {
		for line := range strings.Lines(s.Cgroup) {
			if path := strings.SplitN(strings.TrimSpace(line), ":", 3)[2]; path != "/" {
				t.Errorf("cgroup %q", line)
			}
		}
	})
}

func TestInitAndExecAreInTheContainersCgroup(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	e := b.startExec(execSpec{args: []string{"sleep", "100000"}})
	dirs := ktest.CgroupDirs(b.d.Cgroup(b.id))
	if len(dirs) == 0 {
		t.Fatal("no cgroup")
	}
	init, exec := strconv.Itoa(b.pid()), strconv.Itoa(int(e.p.Pid()))
	for _, dir := range dirs {
		if procs := strings.Fields(readFile(dir + "/cgroup.procs")); !slices.Contains(procs, init) || !slices.Contains(procs, exec) {
			t.Errorf("%s has %q, want %s and %s", dir, procs, init, exec)
		}
	}
	b.stop()
}

// containerd/containerd#8249: without a limit in the spec a process has the one
// that the shim was started with, not the one that the Go runtime raised it to.
func TestWithoutALimitOfFilesItIsTheDaemons(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	if err != nil {
		t.Fatal(err)
	}
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "ulimit -Sn; ulimit -Hn; exec sleep 100000"},
		spec: editProcess(func(p *specs.Process) { p.Rlimits = nil }),
	})
	b.out.waitFor(t, string(out))
	want(t, "limits of an exec", b.ok("sh", "-c", "ulimit -Sn; ulimit -Hn"), string(out))
	b.stop()
}
