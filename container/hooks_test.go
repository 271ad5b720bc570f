package container_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// hook appends its name, its state and what it sees to a file of the bundle.
func (b *bundle) hook(name string) specs.Hook {
	script := fmt.Sprintf(`read s; echo "%s $(readlink /proc/self/ns/uts) $PWD E=$E $s" >> %s`, name, filepath.Join(b.dir, "log"))
	return specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"E=1", "PATH=/bin:/usr/bin"}}
}

func TestHooksRunInTheirNamespacesInOrder(t *testing.T) {
	for _, mode := range []string{"plain", "user namespace"} {
		t.Run(mode, func(t *testing.T) {
			b := newBundle(t, "sleep", "1000")
			if mode != "plain" {
				b.mapped()
				if err := os.Chmod(b.dir, 0o711); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(b.dir, "log"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			inside := specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", "read s; echo \"startContainer $s\" > /tmp/log"}}
			b.spec.Hooks = &specs.Hooks{
				Prestart:       []specs.Hook{b.hook("prestart")}, //nolint:staticcheck // deprecated, and still to be run
				CreateRuntime:  []specs.Hook{b.hook("createRuntime")},
				StartContainer: []specs.Hook{inside},
				Poststart:      []specs.Hook{b.hook("poststart")}, Poststop: []specs.Hook{b.hook("poststop")},
			}
			if mode == "plain" {
				b.spec.Hooks.CreateContainer = []specs.Hook{b.hook("createContainer")}
			}
			b.spec.Process.Env = append(b.spec.Process.Env, "LD_PRELOAD=/evil.so")
			c := b.start()
			own, _ := os.Readlink("/proc/self/ns/uts")
			theirs, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/uts", c.Init().PID()))
			if err := c.Init().Kill(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-c.Init().Done()
			if err := c.Delete(context.Background()); err != nil {
				t.Fatal(err)
			}
			log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
			rest := string(log)
			for _, want := range []struct{ name, ns, cwd, status string }{
				{"prestart", own, "/", "created"},
				{"createRuntime", own, "/", "created"},
				{"createContainer", theirs, filepath.Join(b.dir, "rootfs"), "created"},
				{"poststart", own, "/", "running"},
				{"poststop", own, "/", "stopped"},
			} {
				if want.name == "createContainer" && mode != "plain" {
					continue
				}
				line, after, _ := strings.Cut(rest, "\n")
				rest = after
				if !strings.HasPrefix(line, want.name+" "+want.ns+" "+want.cwd+" E=1 {") || !strings.Contains(line, `"status":"`+want.status+`"`) {
					t.Errorf("want %v, got %s", want, line)
				}
			}
			started, err := os.ReadFile(filepath.Join(b.dir, "rootfs/tmp/log"))
			if err != nil || !strings.Contains(string(started), `startContainer {`) || !strings.Contains(string(started), `"pid":1,`) {
				t.Errorf("%v %s", err, started)
			}
		})
	}
}

func TestAHookThatFailsStopsTheContainerAndOneThatHangsTimesOut(t *testing.T) {
	one := 1
	for name, hooks := range map[string]*specs.Hooks{
		"startContainer": {StartContainer: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo oops; exit 3"}}}},
		"poststart":      {Poststart: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo oops; exit 3"}}}},
		"timeout":        {Poststart: []specs.Hook{{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Timeout: &one}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, "sleep", "1000")
			b.spec.Hooks = hooks
			c, err := b.create(container.Stdio{})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Init().Start(context.Background(), container.Stdio{})
			if err == nil || name != "timeout" && !strings.Contains(err.Error(), "exit status 3: oops") {
				t.Errorf("got %v", err)
			}
			<-c.Init().Done()
		})
	}
}
