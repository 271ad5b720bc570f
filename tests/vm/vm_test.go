// Package vm holds the tests of the lab's own runner, vm.sh.
package vm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine runs vm.sh with a kernel that is there and returns what came out.
func machine(t *testing.T, args ...string) (status int, stdout, stderr []byte) {
	t.Helper()
	kernel := os.Getenv("IBEX_VM_KERNEL")
	if kernel == "" {
		t.Skip("no machine to boot: IBEX_VM_KERNEL is not set; tests/vm/run.sh RUN=runner sets it")
	}
	var out, errs bytes.Buffer
	cmd := exec.Command("./vm.sh", append([]string{"-k", kernel, "-t", "120"}, args...)...)
	tmp := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("vm.sh left behind %v", left)
	}
	return cmd.ProcessState.ExitCode(), out.Bytes(), errs.Bytes()
}

func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out of the quick run")
	}
}

func TestCommandsStatusAndStreamsComeBack(t *testing.T) {
	status, out, errs := machine(t, "-e", "WORD=a b", "--", "sh", "-c", `echo "$WORD"; echo complaint >&2; exit 42`)
	if status != 42 || string(out) != "a b\n" || string(errs) != "complaint\n" {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

func TestMachineHasPureCgroupV2WithEveryControllerDelegated(t *testing.T) {
	long(t)
	status, out, errs := machine(t, "--", "sh", "-c",
		`grep -c cgroup /proc/mounts; cat /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/cgroup.subtree_control`)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if status != 0 || len(lines) != 4 || lines[0] != "1" || lines[1] != "0::/vm" || lines[2] != lines[3] ||
		!strings.Contains(lines[2], "memory") {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

func TestSystemdIsRunningAndDelegates(t *testing.T) {
	long(t)
	status, out, errs := machine(t, "-S", "--", "sh", "-c",
		`cat /proc/1/comm; systemctl is-system-running; cat /proc/self/cgroup; mkdir /sys/fs/cgroup/system.slice/vm-run.service/x; exit 3`)
	if status != 3 || string(out) != "systemd\nrunning\n0::/system.slice/vm-run.service\n" {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

func TestOverTheLimitIs124(t *testing.T) {
	long(t)
	status, out, errs := machine(t, "-t", "15", "--", "sh", "-c", "echo before; sleep 600")
	if status != 124 || string(out) != "before\n" || !strings.Contains(string(errs), "over the limit of 15 s") {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

func TestDeathOfTheMachineIs125WithTheConsole(t *testing.T) {
	long(t)
	status, out, errs := machine(t, "--", "sh", "-c", "echo before; echo c >/proc/sysrq-trigger; sleep 600")
	if status != 125 || string(out) != "before\n" || !strings.Contains(string(errs), "sysrq triggered crash") {
		t.Errorf("status %d, stdout %q, stderr %q", status, out, errs)
	}
}

func TestDaemonsLeftBehindDoNotHoldTheMachine(t *testing.T) {
	long(t)
	for _, opts := range [][]string{nil, {"-S"}} {
		args := append(opts, "--", "sh", "-c", "setsid sleep 1000 & nohup sleep 1000 & trap '' TERM; echo gone")
		if status, out, errs := machine(t, args...); status != 0 || string(out) != "gone\n" {
			t.Errorf("%v: status %d, stdout %q, stderr %q", opts, status, out, errs)
		}
	}
}

// Directories go in and out, and every byte value comes through stdout, as much
// of it as does not fit any buffer on the way.
func TestDirectoriesAndOutputAreBinaryClean(t *testing.T) {
	in, outDir := t.TempDir(), t.TempDir()
	want := sha256.New()
	f, err := os.Create(filepath.Join(in, "noise"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.MultiWriter(f, want), rand.NewChaCha8([32]byte{}), 20<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	script := fmt.Sprintf(`cat %[1]s/noise; touch %[1]s/x 2>/dev/null && exit 9; mkdir %[2]s/d; cp %[1]s/noise %[2]s/d/`, in, outDir)
	status, out, errs := machine(t, "-i", in, "-o", outDir, "--", "sh", "-c", script)
	if status != 0 || sha256.Sum256(out) != [32]byte(want.Sum(nil)) {
		t.Errorf("status %d, %d bytes of stdout with another hash, stderr %q", status, len(out), errs)
	}
	back, err := os.ReadFile(filepath.Join(outDir, "d", "noise"))
	if err != nil || sha256.Sum256(back) != [32]byte(want.Sum(nil)) {
		t.Errorf("the file copied out: %d bytes, %v", len(back), err)
	}
}
