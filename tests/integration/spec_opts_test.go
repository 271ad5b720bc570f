package integration

import (
	"context"
	"os"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// edit changes the spec of a container.
func edit(f func(*specs.Spec)) []oci.SpecOpts {
	return []oci.SpecOpts{func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		f(s)
		return nil
	}}
}

func editProcess(f func(*specs.Process)) []oci.SpecOpts {
	return edit(func(s *specs.Spec) { f(s.Process) })
}

func withMounts(m ...specs.Mount) []oci.SpecOpts {
	return edit(func(s *specs.Spec) { s.Mounts = append(s.Mounts, m...) })
}

// withResources edits linux.resources.
func withResources(f func(*specs.LinuxResources)) []oci.SpecOpts {
	return edit(func(s *specs.Spec) { f(s.Linux.Resources) })
}

func hostPID() []oci.SpecOpts { return []oci.SpecOpts{oci.WithHostNamespace(specs.PIDNamespace)} }

// withNamespace makes the container join the namespace that path names.
func withNamespace(kind specs.LinuxNamespaceType, path string) oci.SpecOpts {
	return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: path})
}

func ptr[T any](v T) *T { return &v }

// failStart creates and starts a container that must fail at one of the two,
// and returns the error. The task is gone afterwards.
func (b *box) failStart() error {
	b.t.Helper()
	err := b.tryCreate()
	if err != nil {
		if b.task != nil {
			b.t.Fatalf("the task exists, but: %v", err)
		}
		return err
	}
	if err = b.task.Start(b.ctx); err == nil {
		b.t.Fatalf("it started; output %q", b.out)
	}
	if _, derr := b.task.Delete(b.ctx); derr != nil && !errdefs.IsNotFound(derr) {
		b.t.Errorf("delete after the failed start: %v", derr)
	}
	b.deleted = true
	return err
}

// readFile returns the text of a file, or "" if it cannot be read.
func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// edit changes the spec of a container that has no task yet.
func (b *box) edit(f func(*specs.Spec)) {
	b.t.Helper()
	spec, err := b.container.Spec(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	f(spec)
	if err := b.container.Update(b.ctx, containerd.UpdateContainerOpts(containerd.WithSpec(spec))); err != nil {
		b.t.Fatal(err)
	}
}
