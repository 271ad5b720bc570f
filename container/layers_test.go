package container_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

// overlay gives the bundle a root of layers: a lower one with the file "below",
// its rootfs, and an upper one, which is returned. All belong to root.
func (b *bundle) overlay(options ...string) (upper string) {
	b.t.Helper()
	below, upper, work := filepath.Join(b.dir, "below"), filepath.Join(b.dir, "upper"), filepath.Join(b.dir, "work")
	for _, d := range []string{below, upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(below, "below"), nil, 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.layers = []container.RootfsMount{{Type: "overlay", Source: "overlay", Options: append([]string{
		"index=off", "workdir=" + work, "upperdir=" + upper, "lowerdir=" + filepath.Join(b.dir, "rootfs") + ":" + below,
	}, options...)}}
	return upper
}

func TestLayersAreSeenThroughTheMappings(t *testing.T) {
	if k := kernel(t); k[0] < 6 || k[0] == 6 && k[1] < 15 {
		t.Skip("overlays of detached mounts: Linux 6.15")
	}
	b := newBundle(t, "sh", "-c", "stat -c %u:%g /bin/busybox /below; touch /made && stat -c %u:%g /made")
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings = ids, ids
	upper := b.overlay("uidmap=0:200000:65536", "gidmap=0:200000:65536")
	if err := os.Chown(upper, 200000, 200000); err != nil { // as the snapshotter does
		t.Fatal(err)
	}
	if out, code := b.run(); out != "0:0\n0:0\n0:0\n" || code != 0 {
		t.Errorf("code %d, owners in the container:\n%s", code, out)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(upper, "made"), &st); err != nil || st.Uid != 200000 {
		t.Errorf("the new file belongs to %d on the host, %v", st.Uid, err)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), b.dir) {
		t.Error("something is mounted on the host")
	}
}

func kernel(t *testing.T) (v [2]int) {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(data), "%d.%d", &v[0], &v[1]); err != nil {
		t.Fatal(err)
	}
	return v
}
