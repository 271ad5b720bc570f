//go:build cgo && seccomp

package oracle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	runc "github.com/opencontainers/runc/libcontainer/seccomp"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

const childProfile = "IBEX_ORACLE_PROFILE"

// TestMain is the child when asked: it puts itself under runc's filter and
// waits to be looked at.
func TestMain(m *testing.M) {
	if path := os.Getenv(childProfile); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p specs.LinuxSeccomp
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	config, err := specconv.SetupSeccomp(&p)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	tid := unix.Gettid()
	if _, err := runc.InitSeccomp(config); err != nil {
		return err
	}
	fmt.Println(tid)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent closes it
	return nil
}

// installed is the filter that runc's own code installs for a profile, read
// back from the kernel.
func installed(t *testing.T, p *specs.LinuxSeccomp) []unix.SockFilter {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir() + "/profile.json"
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childProfile+"="+path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // the child's end is of no interest
	defer stdin.Close()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stdin.Close()
		_ = cmd.Wait()
		t.Fatalf("child: %v: %s", err, stderr.String())
	}
	tid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	program, err := filterOf(tid)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		t.Skipf("PTRACE_SECCOMP_GET_FILTER: %v (needs CONFIG_CHECKPOINT_RESTORE and CAP_SYS_ADMIN)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// filterOf reads the newest filter of a thread: ptrace(2),
// PTRACE_SECCOMP_GET_FILTER.
func filterOf(tid int) ([]unix.SockFilter, error) {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := unix.PtraceAttach(tid); err != nil {
		return nil, err
	}
	defer unix.PtraceDetach(tid) //nolint:errcheck // the child ends next
	var status unix.WaitStatus
	if _, err := unix.Wait4(tid, &status, unix.WALL, nil); err != nil {
		return nil, err
	}
	buf := make([]byte, 8*4096)
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SECCOMP_GET_FILTER, uintptr(tid), 0, uintptr(unsafe.Pointer(&buf[0])), 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return decode(buf[:8*n]), nil
}

// This is the whole of runc: its reading of the profile, libseccomp, and the
// ENOSYS stub that it puts in front.
func TestDefaultProfilesAreWhatRuncInstalls(t *testing.T) {
	for name, p := range profiles(t) {
		t.Run(name, func(t *testing.T) {
			p = onlyKnown(p, p.Architectures)
			theirs := installed(t, p)
			f, err := seccomp.Compile(p)
			if err != nil {
				t.Fatal(err)
			}
			values := around(p)
			ours := f.Program
			calls, real, sumOurs, sumTheirs := 0, 0, 0, 0
			try := func(d seccomptest.Data) (a, b int) {
				got, a, err := seccomptest.Run(ours, &d)
				if err != nil {
					t.Fatal(err)
				}
				want, b, err := seccomptest.Run(theirs, &d)
				if err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Fatalf("nr %#x arch %#x args %#x: got %#x; runc's filter has %#x", d.Nr, d.Arch, d.Args, got, want)
				}
				calls++
				return a, b
			}
			for audit := range map[uint32]bool{
				seccomptest.Audit[specs.ArchX86_64]: true, seccomptest.Audit[specs.ArchX86]: true, seccomptest.Audit[specs.ArchAARCH64]: true,
			} {
				for _, base := range []uint32{0, 0x3ffffff0, 0x40000000, 0x7ffffff0, 0x80000000, 0xc0000000, 0xfffffe00} {
					for nr := base; nr-base < 512; nr++ {
						for _, v := range values {
							try(seccomptest.Data{Nr: nr, Arch: audit, Args: [6]uint64{v}})
							try(seccomptest.Data{Nr: nr, Arch: audit, Args: [6]uint64{1, v, v}})
						}
					}
				}
			}
			for _, name := range seccomp.Names(seccomp.Native()) {
				nr, _ := seccomp.Number(seccomp.Native(), name)
				a, b := try(seccomptest.Data{Nr: nr, Arch: seccomptest.Audit[seccomp.Native()]})
				real, sumOurs, sumTheirs = real+1, sumOurs+a, sumTheirs+b
			}
			t.Logf("%d calls; instructions: %d, runc's %d; executed for a call of this machine, mean of all: %.1f, runc's %.1f", calls,
				len(ours), len(theirs), float64(sumOurs)/float64(real), float64(sumTheirs)/float64(real))
		})
	}
}
