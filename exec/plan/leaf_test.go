package plan

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func goTool(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// leaves are what the child's loop may call.
var leaves = map[string]bool{
	"syscall.RawSyscall6(SB)":                     true,
	"internal/runtime/syscall/linux.Syscall6(SB)": true,

	// On arm64 it is assembly with the stack calling convention.
	"internal/runtime/syscall/linux.Syscall6.abi0(SB)": true,
}

func TestRunInChildCallsNothingButRawSystemCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: does not build test binaries")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			bin := filepath.Join(t.TempDir(), "plan.test")
			env := []string{"GOARCH=" + arch, "CGO_ENABLED=0", "GOFLAGS="}
			goTool(t, env, "test", "-c", "-o", bin, ".")
			for _, fn := range []string{`exec/plan\.runInChild$`, `^syscall\.RawSyscall6$`} {
				text := goTool(t, env, "tool", "objdump", "-s", fn, bin)
				calls := checkLeaf(t, text)
				if strings.Count(text, "TEXT ") != 1 || calls == 0 {
					t.Errorf("%s: %d calls in\n%s", fn, calls, text)
				}
			}
		})
	}
}

// checkLeaf reports calls, and jumps out of the function, to anything but
// leaves, and returns how many it saw.
func checkLeaf(t *testing.T, text string) (calls int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "TEXT ") {
			continue
		}
		for _, bad := range []string{"morestack", "stackguard", "duffzero", "duffcopy", "gcWriteBarrier", "panic"} {
			if strings.Contains(line, bad) {
				t.Errorf("the child's loop uses %s: %s", bad, line)
			}
		}
		f := strings.Fields(line) // file:line, address, code, instruction, operand
		for i, op := range f {
			if i+1 == len(f) || i < 3 {
				continue
			}
			to := f[i+1]
			if op == "CALL" || strings.HasSuffix(to, "(SB)") && (op == "JMP" || op == "B") {
				calls++
				if !leaves[to] {
					t.Errorf("the child's loop calls %s: %s", to, line)
				}
			}
		}
	}
	return calls
}

func TestPlanHoldsInEveryBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: does not build and run variants")
	}
	if os.Getenv("IBEX_PLAN_VARIANT") != "" {
		t.Skip("this is a variant")
	}
	for _, v := range []struct {
		name string
		env  []string
		args []string
	}{
		{"race detector", []string{"CGO_ENABLED=1"}, []string{"test", "-short", "-race", "."}},
		{"no optimization", []string{"CGO_ENABLED=0"}, []string{"test", "-short", "-gcflags=all=-N -l", "."}},
		{"no cgo", []string{"CGO_ENABLED=0"}, []string{"test", "-short", "."}},
		{"arm64", []string{"CGO_ENABLED=0", "GOARCH=arm64"}, []string{"vet", "."}},
		{"arm64, no optimization", []string{"CGO_ENABLED=0", "GOARCH=arm64"}, []string{"test", "-c", "-gcflags=-N -l", "-o", "/dev/null", "."}},
	} {
		t.Run(v.name, func(t *testing.T) {
			goTool(t, append(v.env, "GOFLAGS=", "IBEX_PLAN_VARIANT=1"), v.args...)
		})
	}
}
