// Package contrib checks the files that operators copy.
package contrib

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

const runtimeType = "io.containerd.ibex.v1"

// handler reads what a drop-in says about the runtime handler ibex.
func handler(t *testing.T, file, plugin string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := toml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	at := doc
	for _, key := range []string{"plugins", plugin, "containerd", "runtimes", "ibex"} {
		next, ok := at[key].(map[string]any)
		if !ok {
			t.Fatalf("%s: no table %s", file, key)
		}
		at = next
	}
	return at
}

func TestDropInsNameTheRuntime(t *testing.T) {
	for file, plugin := range map[string]string{
		"containerd/ibex-v2.toml": "io.containerd.grpc.v1.cri",
		"containerd/ibex-v3.toml": "io.containerd.cri.v1.runtime",
	} {
		if got := handler(t, file, plugin)["runtime_type"]; got != runtimeType {
			t.Errorf("%s: runtime_type = %v; want %s", file, got, runtimeType)
		}
	}
}

func TestContainerdAcceptsTheDropIns(t *testing.T) {
	bin, err := exec.Command("../tests/tools/build.sh", "--bin").Output()
	if err != nil {
		t.Fatal(err)
	}
	containerd := filepath.Join(strings.TrimSpace(string(bin)), "containerd")
	if _, err := os.Stat(containerd); err != nil {
		t.Skip("the pinned containerd is not built: tests/tools/build.sh containerd")
	}
	files, err := filepath.Glob("containerd/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no drop-ins: %v", err)
	}
	for _, f := range files {
		abs, err := filepath.Abs(f)
		if err != nil {
			t.Fatal(err)
		}
		main := filepath.Join(t.TempDir(), "config.toml")
		if err := os.WriteFile(main, []byte("version = 3\nimports = ['"+abs+"']\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(containerd, "--config", main, "config", "dump").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", f, err, out)
		}
		for _, want := range []string{"containerd.runtimes.ibex]", "runtime_type = '" + runtimeType + "'", "containerd.runtimes.runc]"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: containerd's configuration has no %s", f, want)
			}
		}
	}
}

func TestRuntimeClassNamesTheHandler(t *testing.T) {
	text, err := os.ReadFile("kubernetes/runtimeclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"apiVersion: node.k8s.io/v1\n", "kind: RuntimeClass\n", "\nhandler: ibex\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("runtimeclass.yaml has no line %q", strings.TrimSpace(want))
		}
	}
}
