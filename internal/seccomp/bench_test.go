package seccomp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/seccomp"
)

func load(t testing.TB, name string) *specs.LinuxSeccomp {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	p := new(specs.LinuxSeccomp)
	if err := json.Unmarshal(text, p); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func BenchmarkCompile(b *testing.B) {
	for _, name := range []string{"containerd-few", "docker-few"} {
		b.Run(name, func(b *testing.B) {
			p := load(b, name+".json")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := seccomp.CompileFor(specs.ArchX86_64, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
