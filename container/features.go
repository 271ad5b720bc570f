package container

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/ibex-run/ibex/container/rootfs"
	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/internal/seccomp"
)

// Features is the OCI features document, made from the tables that the code
// itself works with.
func Features() *features.Features {
	yes, no := true, false
	var namespaces []string
	for _, t := range joinOrder {
		namespaces = append(namespaces, string(t))
	}
	modes, flags := memoryPolicyNames()
	return &features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		Hooks:         hookNames,
		MountOptions:  rootfs.Options(),
		Linux: &features.Linux{
			Namespaces:   namespaces,
			Capabilities: exec.CapNames(),
			Cgroup:       &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &no, Rdma: &yes},
			Seccomp: &features.Seccomp{
				Enabled: &yes, Actions: seccomp.Actions(), Operators: seccomp.Operators(), Archs: seccomp.Archs(),
				KnownFlags: seccomp.KnownFlags(), SupportedFlags: seccomp.SupportedFlags(),
			},
			Apparmor: &features.Apparmor{Enabled: &yes},
			Selinux:  &features.Selinux{Enabled: &yes},
			IntelRdt: &features.IntelRdt{Enabled: &no, Schemata: &no, Monitoring: &no},
			MountExtensions: &features.MountExtensions{
				IDMap: &features.IDMap{Enabled: &yes},
			},
			MemoryPolicy: &features.MemoryPolicy{Modes: modes, Flags: flags},
			NetDevices:   &features.NetDevices{Enabled: &no},
		},
	}
}
