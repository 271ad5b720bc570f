package container_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

func (b *bundle) detached() (*container.Container, error) {
	b.t.Helper()
	b.config()
	state := filepath.Join(b.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		b.t.Fatal(err)
	}
	return container.Create(context.Background(), container.CreateOptions{ID: b.id, Bundle: b.dir, StateDir: state, Detached: true})
}

func (b *bundle) open() *container.Container {
	b.t.Helper()
	c, err := container.Open(filepath.Join(b.dir, "state"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func TestADetachedContainerIsStartedAndEndedByOthers(t *testing.T) {
	b := newBundle(t, "sh", "-c", "echo started > /tmp/x; sleep 1000")
	made, err := b.detached()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	c := b.open()
	if s := c.Init().Status(); s != container.Created || c.Init().PID() != made.Init().PID() {
		t.Errorf("status %v, PID %d", s, c.Init().PID())
	}
	if err := c.Init().Start(ctx, container.Stdio{}); err != nil {
		t.Fatal(err)
	}
	if err := b.open().Init().Start(ctx, container.Stdio{}); !errors.Is(err, container.ErrState) {
		t.Errorf("second start: %v", err)
	}
	c = b.open()
	if out, code, err := b.exec(c, "e", "cat", "/proc/1/cmdline"); err != nil || code != 0 || !strings.Contains(out, "sleep\x001000") {
		t.Errorf("%q %d %v", out, code, err)
	}
	if err := c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	c = b.open()
	if s := c.Init().Status(); s != container.Paused {
		t.Errorf("status %v", s)
	}
	if err := c.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx); !errors.Is(err, container.ErrState) {
		t.Errorf("delete while it runs: %v", err)
	}
	if err := c.Init().Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-made.Init().Done()
	c = b.open()
	if s := c.Init().Status(); s != container.Stopped {
		t.Errorf("status %v", s)
	}
	if err := c.Delete(ctx); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(b.dir, "state")); len(left) > 1 {
		t.Errorf("left in the state directory: %v", left)
	}
	if _, err := container.Open(filepath.Join(b.dir, "nowhere")); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestADetachedContainerSaysWhyItsProgramDoesNotRun(t *testing.T) {
	b := newBundle(t, "/tmp/x")
	b.write("tmp/x", "#!/missing\n")
	if err := os.Chmod(filepath.Join(b.dir, "rootfs/tmp/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.detached(); err != nil {
		t.Fatal(err)
	}
	c := b.open()
	err := c.Init().Start(context.Background(), container.Stdio{})
	if !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), "/missing") {
		t.Errorf("got %v", err)
	}
	if err := c.Kill(context.Background(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := b.open().Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestAChangedConfigurationHasNoEffectOnACreatedContainer(t *testing.T) {
	b := newBundle(t, "true")
	b.spec.Annotations = map[string]string{"a": "first"}
	if _, err := b.detached(); err != nil {
		t.Fatal(err)
	}
	b.spec.Annotations["a"] = "second"
	b.config()
	c := b.open()
	if got := c.Spec().Annotations["a"]; got != "first" {
		t.Errorf("the annotation is %q", got)
	}
	if err := c.Kill(context.Background(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := b.open().Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestAContainerWithoutAProcessIsCreatedAndNotStarted(t *testing.T) {
	b := newBundle(t)
	b.spec.Process = nil
	made, err := b.detached()
	if err != nil {
		t.Fatal(err)
	}
	c := b.open()
	if err := c.Init().Start(context.Background(), container.Stdio{}); !errors.Is(err, container.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	<-made.Init().Done()
	if err := b.open().Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestADetachedContainerMayHaveFewDescriptors(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	b.spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 3, Hard: 3}}
	made, err := b.detached()
	if err != nil {
		t.Fatal(err)
	}
	c := b.open()
	if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
		t.Fatal(err)
	}
	var got unix.Rlimit
	if err := unix.Prlimit(made.Init().PID(), unix.RLIMIT_NOFILE, nil, &got); err != nil || got.Cur != 3 || got.Max != 3 {
		t.Errorf("%+v %v", got, err)
	}
	if err := c.Kill(context.Background(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-made.Init().Done()
	if err := b.open().Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
}
