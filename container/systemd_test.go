package container_test

import (
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

func TestAScopeOfSystemdHoldsTheContainer(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("needs systemd as PID 1")
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("needs cgroup v2")
	}
	b := newBundle(t, "sleep", "1000")
	b.spec.Linux.CgroupsPath = "ibextest.slice:ibex:" + b.id
	limit, pids := int64(64<<20), int64(20)
	b.spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &limit}
	b.spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: &pids}
	c := b.start()
	dir := "/sys/fs/cgroup/ibextest.slice/ibex-" + b.id + ".scope/"
	if data, err := os.ReadFile(dir + "memory.max"); err != nil || strings.TrimSpace(string(data)) != "67108864" {
		t.Errorf("memory.max: %q %v", data, err)
	}
	procs, err := c.Pids()
	if err != nil || len(procs) != 1 {
		t.Errorf("processes: %v %v", procs, err)
	}
	if out, code, err := b.exec(c, "e", "cat", "/proc/self/cgroup"); err != nil || code != 0 {
		t.Errorf("%q %d %v", out, code, err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	})
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Done()
	if err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := b.create(container.Stdio{}) // the same name at once
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
}
