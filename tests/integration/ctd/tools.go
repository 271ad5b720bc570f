package ctd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Shim is the name of the shim that this module builds.
const Shim = "containerd-shim-ibex-v1"

// Runtime is the runtime type that leads containerd to Shim.
const Runtime = "io.containerd.ibex.v1"

// Incumbent is the runtime type of containerd's own shim, which needs runc.
const Incumbent = "io.containerd.runc.v2"

// Root returns the directory of this module.
func Root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// Link fills dir with links to the named tools. They come from $IBEX_TOOLS, a
// directory, or else from tests/tools, whose script builds what is missing.
func Link(dir string, names ...string) error {
	from := os.Getenv("IBEX_TOOLS")
	if from == "" {
		root, err := Root()
		if err != nil {
			return err
		}
		script := filepath.Join(root, "tests/tools/build.sh")
		build := exec.Command(script, names...)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build tools: %w", err)
		}
		out, err := exec.Command(script, "--bin").Output()
		if err != nil {
			return fmt.Errorf("%s --bin: %w", script, err)
		}
		from = strings.TrimSpace(string(out))
	}
	for _, n := range names {
		path, err := filepath.EvalSymlinks(filepath.Join(from, n))
		if err != nil {
			return fmt.Errorf("tool %s: %w", n, err)
		}
		if err := os.Symlink(path, filepath.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

// Build compiles a package of this module to dir, static as it ships. If the
// directory $IBEX_TEST_BIN has the program, it is linked from there: where the
// tests run there may be no compiler.
func Build(dir, pkg string) error {
	name := filepath.Base(pkg)
	if built := filepath.Join(os.Getenv("IBEX_TEST_BIN"), name); filepath.IsAbs(built) {
		if _, err := os.Stat(built); err == nil {
			return os.Symlink(built, filepath.Join(dir, name))
		}
	}
	root, err := Root()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// BuildShim puts the shim in dir: the one that $IBEX_TEST_SHIM names, or what
// Build gives.
func BuildShim(dir string) error {
	if path := os.Getenv("IBEX_TEST_SHIM"); path != "" {
		return os.Symlink(path, filepath.Join(dir, Shim))
	}
	return Build(dir, "./cmd/"+Shim)
}

// busybox finds a static busybox.
func busybox() (string, error) {
	for _, p := range []string{os.Getenv("IBEX_BUSYBOX"), "/bin/busybox", "/usr/bin/busybox", "/usr/lib/busybox/busybox", "/run/vm/busybox"} {
		if st, err := os.Stat(p); p != "" && err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", errors.New("no busybox; on Debian: apt-get install busybox-static")
}
