package container

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestOnlyAMountThatMayBringTheProgramPutsTheLookupOff(t *testing.T) {
	bind := func(dest string) specs.Mount {
		return specs.Mount{Destination: dest, Type: "bind", Source: "/x", Options: []string{"rbind"}}
	}
	for _, tt := range []struct {
		program string
		mounts  []specs.Mount
		want    bool
	}{
		{"sh", nil, false},
		{"sh", []specs.Mount{{Destination: "/proc", Type: "proc"}, {Destination: "/dev", Type: "tmpfs"}, bind("/etc/hosts"), bind("/dev/shm")}, false},
		{"sh", []specs.Mount{bind("/usr")}, true},
		{"sh", []specs.Mount{bind("/data")}, true}, // a link of the image may lead there
		{"sh", []specs.Mount{{Destination: "/bin", Type: "overlay"}}, true},
		{"sh", []specs.Mount{{Destination: "/run", Type: "tmpfs", Options: []string{"tmpcopyup"}}}, true},
		{"sh", []specs.Mount{{Destination: "/run", Type: "tmpfs", Options: []string{"rbind"}}}, true},
		{"/proc/self/exe", nil, true},
		{"/x/../dev/sh", nil, true},
	} {
		if got := mayBring(tt.mounts, tt.program); got != tt.want {
			t.Errorf("%s with %v: %v", tt.program, tt.mounts, got)
		}
	}
}
