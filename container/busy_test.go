package container_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// opencontainers/runc#2356, youki-dev/youki#3437
func TestAnExecFollowsTheFirstProcessIntoACgroupBelow(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("needs cgroup v2")
	}
	b := newBundle(t, "sh", "-c", `mkdir /sys/fs/cgroup/leaf && echo $$ > /sys/fs/cgroup/leaf/cgroup.procs &&
echo +memory > /sys/fs/cgroup/cgroup.subtree_control && touch /tmp/done; sleep 1000`)
	for i := range b.spec.Mounts {
		if b.spec.Mounts[i].Type == "cgroup" {
			b.spec.Mounts[i].Options = []string{"nosuid", "noexec", "nodev", "rw"}
		}
	}
	c := b.start()
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := os.Stat(b.dir + "/rootfs/tmp/done"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the container did not nest")
		}
		time.Sleep(10 * time.Millisecond)
	}
	out, code, err := b.exec(c, "e", "cat", "/proc/self/cgroup")
	if err != nil || code != 0 || out != "0::/leaf\n" {
		t.Errorf("%q %d %v", out, code, err)
	}
	if procs, err := c.Pids(); err != nil || len(procs) != 1 {
		t.Errorf("processes: %v %v", procs, err)
	}
	// Elsewhere than below its own, the first process leads nobody.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.procs", []byte(strconv.Itoa(c.Init().PID())), 0o644); err == nil {
		if _, _, err := b.exec(c, "e2", "true"); err == nil || !strings.Contains(err.Error(), "not below") {
			t.Errorf("after it was moved away: %v", err)
		}
	}
	if err := c.Init().Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Init().Done()
	if err := c.Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.nothingLeft()
}
