package container_test

import (
	"os"
	"strings"
	"testing"

	"github.com/ibex-run/ibex/container"
)

func TestADelegatedCgroupIsTheContainersToDivide(t *testing.T) {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	v2 := err == nil
	for _, mode := range []string{"plain", "user namespace"} {
		t.Run(mode, func(t *testing.T) {
			b := newBundle(t, "sh", "-c", `cat /proc/self/cgroup; cd /sys/fs/cgroup; echo +memory +pids > cgroup.subtree_control &&
mkdir mine && echo 9 > mine/pids.max && cat mine/pids.max && echo $$ > mine/cgroup.procs && cat /proc/self/cgroup
echo 5 > pids.max; sleep 1000`)
			b.spec.Process.Args[2] = strings.TrimSuffix(b.spec.Process.Args[2], "; sleep 1000")
			b.spec.Annotations = map[string]string{"io.ibex.cgroup-delegation": "true"}
			for i := range b.spec.Mounts {
				if b.spec.Mounts[i].Type == "cgroup" {
					b.spec.Mounts[i].Options = []string{"nosuid", "noexec", "nodev"}
				}
			}
			if mode != "plain" {
				b.mapped()
			}
			if !v2 {
				if _, err := b.create(container.Stdio{}); err == nil || !strings.Contains(err.Error(), "needs cgroup v2") {
					t.Errorf("got %v", err)
				}
				return
			}
			out, _ := b.run()
			if !strings.HasPrefix(out, "0::/init\n9\n0::/mine\n") {
				t.Errorf("%q", out)
			}
			if mode != "plain" && !strings.Contains(out, "ermission denied") {
				t.Errorf("the container changed its own limit: %q", out)
			}
		})
	}
}
