package security

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

func itoa(n int) string { return strconv.Itoa(n) }

// NVIDIA's hook got LD_PRELOAD of the image and ran with it as root of the host,
// in the image's directory (CVE-2025-23266). A hook has its own environment
// and no descriptor but three.
func TestAHookSeesNothingOfTheContainersEnvironment(t *testing.T) {
	for _, kind := range []string{"prestart", "createRuntime", "createContainer", "poststart", "poststop"} {
		b := newBox(t, "/bin/true")
		said := filepath.Join(b.dir, "said")
		h := []specs.Hook{{Path: busybox, Args: []string{"sh", "-c", "(env; pwd; ls /proc/self/fd) > " + said}, Env: []string{"A=b"}}}
		b.spec.Process.Env = []string{"PATH=.", "LD_PRELOAD=/evil.so", "HOME=/evil"}
		b.spec.Process.Args = []string{"/bin/true"}
		b.spec.Hooks = &specs.Hooks{}
		switch kind {
		case "prestart":
			b.spec.Hooks.Prestart = h //nolint:staticcheck // deprecated, and still run
		case "createRuntime":
			b.spec.Hooks.CreateRuntime = h
		case "createContainer":
			b.spec.Hooks.CreateContainer = h
		case "poststart":
			b.spec.Hooks.Poststart = h
		case "poststop":
			b.spec.Hooks.Poststop = h
		}
		_, _, err := b.run()
		must(t, err)
		text, err := os.ReadFile(said)
		must(t, err)
		var rest []string
		for l := range strings.Lines(string(text)) {
			// The shell adds these by itself.
			if l = strings.TrimSpace(l); !strings.HasPrefix(l, "PWD=") && l != "PATH=/sbin:/usr/sbin:/bin:/usr/bin" && !strings.HasPrefix(l, "SHLVL=") {
				rest = append(rest, l)
			}
		}
		cwd := "/"
		if kind == "createContainer" {
			cwd = b.root // in the container's namespaces, and where such hooks expect to be
		}
		if got := strings.Join(rest, " "); got != "A=b "+cwd+" 0 1 2 3" {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// Ids become names of files and cgroups.
func TestAnIdIsANameAndNothingElse(t *testing.T) {
	b := newBox(t, "/bin/sleep", "1000")
	c := b.start()
	for _, id := range []string{"", ".", "..", "a/b", "/", "a\x00b", "-rf", "_a", "a b", "ä", "a\n", strings.Repeat("a", 129), "a..\\b", "a:b", "../c"} {
		if _, err := container.Create(t.Context(), container.CreateOptions{ID: id, Bundle: b.dir, StateDir: t.TempDir()}); err == nil {
			t.Errorf("a container was created with id %.20q", id)
		}
		if _, err := c.Exec(id, b.spec.Process, false); err == nil {
			t.Errorf("an exec was added with id %.20q", id)
		}
	}
}

// A directory of a container that others could search let users of the host run
// its setuid programs (CVE-2021-41103); one that they can write is no bundle.
func TestWhatIsMadeIsRootsAloneWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	b := newBox(t, "/bin/sleep", "1000")
	b.start()
	err := filepath.WalkDir(b.dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == b.dir {
			return err
		}
		if p == b.root {
			return filepath.SkipDir
		}
		st, err := e.Info()
		if err == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, st.Mode())
		}
		return err
	})
	must(t, err)
}

func TestABundleThatOthersCanWriteIsRefused(t *testing.T) {
	for name, change := range map[string]func(*box) error{
		"mode 0777":     func(b *box) error { return os.Chmod(b.dir, 0o777) },
		"mode 0771":     func(b *box) error { return os.Chmod(b.dir, 0o771) },
		"another owner": func(b *box) error { return os.Chown(b.dir, 1000, 0) },
		"config is a link": func(b *box) error {
			if err := os.Rename(filepath.Join(b.dir, "config.json"), filepath.Join(b.dir, "c")); err != nil {
				return err
			}
			return os.Symlink("c", filepath.Join(b.dir, "config.json"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, "/bin/true")
			b.before = func() { must(t, change(b)) }
			if _, _, err := b.run(); err == nil {
				t.Error("it ran")
			}
		})
	}
}
