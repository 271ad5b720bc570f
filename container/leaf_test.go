package container_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/ktest"
)

const treeKill = "io.ibex.exec-tree-kill"

// tree starts an exec of a shell with a child that outlives a kill of the shell.
func (b *bundle) tree(c *container.Container, id string) *container.Process {
	b.t.Helper()
	spec := *b.spec.Process
	spec.Args = []string{"sh", "-c", "sleep 1000; true"}
	p, err := c.Exec(id, &spec, false)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := p.Start(context.Background(), container.Stdio{}); err != nil {
		b.t.Fatal(err)
	}
	b.count(c, 3)
	return p
}

// count waits until there are n processes in the container's cgroup.
func (b *bundle) count(c *container.Container, n int) {
	b.t.Helper()
	ktest.Eventually(b.t, 10*time.Second, "the processes", func() error {
		pids, err := c.Pids()
		if err == nil && len(pids) != n {
			err = fmt.Errorf("%d processes, want %d: %v", len(pids), n, pids)
		}
		return err
	})
}

// leaves lists the cgroups below the container's.
func (b *bundle) leaves() (found []string) {
	for _, m := range ktest.CgroupMounts() {
		filepath.WalkDir(filepath.Join(m.Dir, b.spec.Linux.CgroupsPath), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "ibex-exec-") {
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

func TestSIGKILLToAnExecKillsTheTreeWhereThatIsAskedFor(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	b.spec.Annotations = map[string]string{treeKill: "true"}
	c := b.start()
	other := b.tree(c, "other")
	if got := len(b.leaves()); got != 1 {
		t.Fatalf("%d cgroups of execs: %v", got, b.leaves())
	}
	spec := *b.spec.Process
	spec.Args = []string{"sh", "-c", "sleep 1000; true"}
	p, err := c.Exec("e", &spec, false)
	if err == nil {
		err = p.Start(t.Context(), container.Stdio{})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.count(c, 5)
	if err := p.Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if st := p.ExitStatus(); st.Code != 137 {
		t.Errorf("exit code %d", st.Code)
	}
	b.count(c, 3) // the first process and the other tree
	if err := p.Delete(); err != nil {
		t.Error(err)
	}
	if got := len(b.leaves()); got != 1 {
		t.Errorf("cgroups after the delete: %v", b.leaves())
	}
	if err := other.Kill(unix.SIGKILL); err != nil {
		t.Error(err)
	}
	<-other.Done()
	if err := other.Delete(); err != nil || len(b.leaves()) != 0 {
		t.Errorf("%v %v", err, b.leaves())
	}
}

func TestSIGKILLToAnExecKillsOneProcessByDefault(t *testing.T) {
	for name, annotation := range map[string]string{"nothing said": "", "refused": "false"} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, "sleep", "1000")
			if annotation != "" {
				conf := filepath.Join(b.dir, "config.toml")
				if err := os.WriteFile(conf, []byte("ExecTreeKill = true\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				defer container.UseNodeConfig(conf)()
				b.spec.Annotations = map[string]string{treeKill: annotation}
			}
			c := b.start()
			p := b.tree(c, "e")
			if got := b.leaves(); len(got) != 0 {
				t.Errorf("cgroups: %v", got)
			}
			if err := p.Kill(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			b.count(c, 2)
		})
	}
}

func TestTheNodeMayAskForTreeKills(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	conf := filepath.Join(b.dir, "config.toml")
	if err := os.WriteFile(conf, []byte("ExecTreeKill = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer container.UseNodeConfig(conf)()
	c := b.start()
	p := b.tree(c, "e")
	if err := p.Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.count(c, 1)
}

func TestChildrenOfADeletedExecLiveOnUnlessKilled(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	b.spec.Annotations = map[string]string{treeKill: "true"}
	c := b.start()
	for _, id := range []string{"left", "killed"} {
		spec := *b.spec.Process
		spec.Args = []string{"sh", "-c", "sleep 1000 & true"}
		p, err := c.Exec(id, &spec, false)
		if err == nil {
			err = p.Start(t.Context(), container.Stdio{})
		}
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if id == "left" {
			if err := p.Delete(); err != nil {
				t.Error(err)
			}
			b.count(c, 2)
			continue
		}
		b.count(c, 3)
		if err := p.Kill(unix.SIGKILL); err != nil {
			t.Errorf("kill of what has children: %v", err)
		}
		b.count(c, 2)
		if err := p.Kill(unix.SIGKILL); !errors.Is(err, container.ErrNotFound) {
			t.Errorf("kill of what has none: %v", err)
		}
		if err := p.Delete(); err != nil {
			t.Error(err)
		}
	}
	if got := b.leaves(); len(got) != 1 {
		t.Errorf("cgroups: %v", got)
	}
}

func TestAnExecWithItsOwnCgroupFitsIntoAFullPIDsLimit(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	one := int64(1)
	b.spec.Linux.Resources.Pids = &specs.LinuxPids{Limit: &one}
	b.spec.Annotations = map[string]string{treeKill: "true"}
	c := b.start()
	out, code, err := b.exec(c, "e", "echo", "hi")
	if err != nil || code != 0 || out != "hi\n" || len(b.leaves()) != 0 {
		t.Errorf("%q %d %v %v", out, code, err, b.leaves())
	}
	if _, _, err := b.exec(c, "e", "nope"); err == nil || len(b.leaves()) != 0 {
		t.Errorf("missing command: %v %v", err, b.leaves())
	}
}

func TestAnUnclearAnnotationIsRefused(t *testing.T) {
	b := newBundle(t, "true")
	b.spec.Annotations = map[string]string{treeKill: "yes"}
	if _, err := b.create(container.Stdio{}); !errors.Is(err, container.ErrInvalid) || !strings.Contains(err.Error(), treeKill) {
		t.Errorf("%v", err)
	}
}
