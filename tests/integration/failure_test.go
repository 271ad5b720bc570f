package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// broken are specs that cannot become a container, in the order of the stages
// that find out. names is what the error must say, one of each group.
var broken = []struct {
	name  string
	spec  []oci.SpecOpts
	names []string
	why   string // the incumbent accepts it, or says something else
}{
	{"no arguments", editProcess(func(p *specs.Process) { p.Args = nil }), []string{"args"}, ""},
	{"an empty command", editProcess(func(p *specs.Process) { p.Args = []string{""} }), nil, ""},
	{"a relative directory", editProcess(func(p *specs.Process) { p.Cwd = "tmp" }), []string{"cwd|Cwd"}, ""},
	{"an unknown limit", editProcess(func(p *specs.Process) {
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NONE", Hard: 1, Soft: 1})
	}), []string{"RLIMIT_NONE"}, ""},
	{"a soft limit above the hard one", editProcess(func(p *specs.Process) {
		p.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 10, Soft: 20}}
	}), nil, ""},
	{"a limit that comes twice", editProcess(func(p *specs.Process) {
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024})
	}), []string{"RLIMIT_NOFILE|rlimits"}, "it takes one of them"},
	{
		"a hostname without a namespace", append(edit(func(s *specs.Spec) { s.Hostname = "x" }), oci.WithHostNamespace(specs.UTSNamespace)),
		[]string{"hostname|uts|UTS"},
		"",
	},
	{"a sysctl of the host", edit(func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"kernel.panic": "1"} }), []string{"kernel.panic"}, ""},
	{"a sysctl that does not exist", edit(func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.nope": "1"} }), []string{"nope"}, ""},
	{"an invalid value of a sysctl", edit(func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "x"} }), []string{"ip_forward"}, ""},
	{"a namespace that does not exist", []oci.SpecOpts{withNamespace(specs.NetworkNamespace, "/no/such/ns")}, []string{"/no/such/ns"}, ""},
	{"a namespace of another kind", []oci.SpecOpts{withNamespace(specs.NetworkNamespace, "/proc/self/ns/ipc")}, nil, ""},
	{"a namespace that is a file", []oci.SpecOpts{withNamespace(specs.NetworkNamespace, "/etc/passwd")}, nil, ""},
	{"a namespace that comes twice", edit(func(s *specs.Spec) {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}), []string{"namespace|ns"}, ""},
	{
		"a bind mount without its source", withMounts(specs.Mount{Destination: "/x", Type: "bind", Source: "/no/such/source", Options: []string{"rbind"}}),
		[]string{"/no/such/source"},
		"",
	},
	{"an unknown filesystem", withMounts(specs.Mount{Destination: "/x", Type: "nosuchfs", Source: "x"}), []string{"nosuchfs|/x"}, ""},
	{
		"an unknown option of a mount", withMounts(specs.Mount{Destination: "/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuchoption=1"}}),
		[]string{"/x"},
		"",
	},
	{"a mount through a file", withMounts(specs.Mount{Destination: "/etc/passwd/x", Type: "tmpfs", Source: "tmpfs"}), []string{"/etc/passwd"}, ""},
	{"an invalid CPU period", withResources(func(r *specs.LinuxResources) {
		r.CPU = &specs.LinuxCPU{Period: ptr[uint64](1), Quota: ptr[int64](1)}
	}), []string{"cpu"}, ""},
	{"CPUs that do not exist", withResources(func(r *specs.LinuxResources) { r.CPU = &specs.LinuxCPU{Cpus: "1000"} }), []string{"cpus"}, ""},
	{"a swap limit below the memory limit", withResources(func(r *specs.LinuxResources) {
		r.Memory = &specs.LinuxMemory{Limit: ptr[int64](30 << 20), Swap: ptr[int64](10 << 20)}
	}), nil, ""},
	{"a huge page size that is a path", withResources(func(r *specs.LinuxResources) {
		r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "../../other/x", Limit: 1 << 20}}
	}), nil, ""},
	{
		"a root that is not there", edit(func(s *specs.Spec) { s.Root.Path = "/no/such/root" }),
		[]string{"root"},
		"it mounts containerd's root filesystem elsewhere and fails there",
	},
	{"an invalid propagation", edit(func(s *specs.Spec) { s.Linux.RootfsPropagation = "sideways" }), []string{"sideways|ropagation"}, ""},
	{"an unknown seccomp action", edit(func(s *specs.Spec) {
		s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_MAYBE"}
	}), []string{"SCMP_ACT_MAYBE|seccomp"}, ""},
	{"a hook that fails", edit(func(s *specs.Spec) {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/false", Args: []string{"false"}}}}
	}), []string{"hook"}, ""},
}

// Whatever stage fails: the error names the cause, nothing is left, and the
// same id can be used at once.
//
// opencontainers/runc#4534, containerd/containerd#6860
func TestAFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range broken {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.why != "" {
				notIncumbent(t, tt.why)
			}
			b := newBox(t, boxSpec{spec: tt.spec})
			err := b.failStart()
			for _, group := range tt.names {
				found := false
				for _, name := range strings.Split(group, "|") {
					found = found || strings.Contains(err.Error(), name)
				}
				if !found {
					t.Errorf("error %q does not say %q", short(err.Error()), group)
				}
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			b.checkResidue()
			// Not only the id is free: nothing of the failed one shows.
			again := newBox(t, boxSpec{id: b.id + "b"})
			again.start()
			again.ok("true")
			again.stop()
		})
	}
}

// rare are fields that a runtime may not have. It must not ignore them.
var rare = []struct {
	field string
	spec  []oci.SpecOpts
}{
	{"intelRdt", edit(func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "ibex"} })},
	{"memoryPolicy", edit(func(s *specs.Spec) {
		s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: "MPOL_NOPE", Nodes: "0"}
	})},
	{"netDevices", edit(func(s *specs.Spec) { s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"nodev0": {}} })},
	{"timeOffsets", edit(func(s *specs.Spec) {
		s.Linux.TimeOffsets = map[string]specs.LinuxTimeOffset{"monotonic": {Secs: 5}}
	})},
	{"apparmorProfile", editProcess(func(p *specs.Process) { p.ApparmorProfile = "no-such-profile" })},
	{"selinuxLabel", editProcess(func(p *specs.Process) { p.SelinuxLabel = "system_u:system_r:nope_t:s0" })},
	{"scheduler", editProcess(func(p *specs.Process) { p.Scheduler = &specs.Scheduler{Policy: "SCHED_NOPE"} })},
	{"ioPriority", editProcess(func(p *specs.Process) { p.IOPriority = &specs.LinuxIOPriority{Class: "IOPRIO_NOPE"} })},
	{"personality", edit(func(s *specs.Spec) { s.Linux.Personality = &specs.LinuxPersonality{Domain: "NOPE"} })},
	{"uidMappings", edit(func(s *specs.Spec) {
		s.Linux.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	})},
}

// A field that the runtime cannot honour is refused by name, and not ignored.
func TestAFieldThatIsNotHonouredIsRefusedByName(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it ignores some of them")
	for _, tt := range rare {
		t.Run(tt.field, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, boxSpec{spec: tt.spec})
			err := b.failStart()
			// The field as config.json has it, whatever its case.
			if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(tt.field)) {
				t.Errorf("error %q does not name %s", short(err.Error()), tt.field)
			}
		})
	}
}

// opencontainers/runc#2584: a cgroup path that climbs stays below the root, or
// is refused.
func TestACgroupPathCannotClimb(t *testing.T) {
	t.Parallel()
	for i, path := range []string{"/x/../../../NS/climb%d", "../../NS/climb%d", "/NS/./climb%d", "/NS/../NS/climb%d"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			full := fmt.Sprintf(strings.ReplaceAll(path, "NS", shared.Namespace), i)
			b := newBox(t, boxSpec{spec: edit(func(s *specs.Spec) { s.Linux.CgroupsPath = full })})
			if err := b.tryCreate(); err != nil {
				if b.task == nil {
					wantError(t, err, nil, "cgroup")
					return
				}
				t.Fatal(err)
			}
			if out := readFile(fmt.Sprintf("/proc/%d/cgroup", b.pid())); strings.Contains(out, "..") {
				t.Errorf("cgroups %s", out)
			}
			b.stop()
		})
	}
}
