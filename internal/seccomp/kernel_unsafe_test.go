package seccomp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/seccomp"
	"github.com/ibex-run/ibex/internal/seccomp/seccomptest"
)

const childEnv = "IBEX_SECCOMP_CHILD"

// TestMain is the child of the tests below when asked: filters cannot be
// taken off again.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	var job job
	if err := json.NewDecoder(os.Stdin).Decode(&job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if job.Notify {
		notifyInChild()
	}
	if job.Kill != nil {
		if err := job.Kill.dieInThread(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var results [][]unix.Errno
	for _, part := range job.Parts {
		results = append(results, part.runInThread())
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// job is what a child does: each part on a thread of its own.
type job struct {
	Parts  []part
	Notify bool  // notifyInChild instead
	Kill   *part // first a call that kills its thread
}

type part struct {
	Profile *specs.LinuxSeccomp
	Calls   []seccomptest.Data
}

const notInstalled = unix.Errno(9999)

func (p part) runInThread() []unix.Errno {
	done := make(chan []unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with its filter
		results := make([]unix.Errno, len(p.Calls))
		f, err := seccomp.Compile(p.Profile)
		if err == nil {
			_, err = install(f)
		}
		for i, c := range p.Calls {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				results[i] = notInstalled
				continue
			}
			_, _, results[i] = unix.RawSyscall6(uintptr(c.Nr), uintptr(c.Args[0]), uintptr(c.Args[1]), uintptr(c.Args[2]),
				uintptr(c.Args[3]), uintptr(c.Args[4]), uintptr(c.Args[5]))
		}
		done <- results
	}()
	return <-done
}

// install puts the calling thread under a filter.
func install(f *seccomp.Filter) (fd int, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	prog := unix.SockFprog{Len: uint16(len(f.Program)), Filter: &f.Program[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(f.Flags), uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, os.NewSyscallError("seccomp", errno)
	}
	return int(r), nil
}

// inChild runs a job and returns what its calls returned.
func inChild(t *testing.T, j job) ([][]unix.Errno, error) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stdin = strings.NewReader(string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var results [][]unix.Errno
	if err := json.Unmarshal(out, &results); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return results, nil
}

func call(nr uint32, args ...uint64) seccomptest.Data {
	d := seccomptest.Data{Nr: nr, Arch: seccomptest.Audit[seccomp.Native()]}
	copy(d.Args[:], args)
	return d
}

func TestKernelHoldsTheDefaultProfile(t *testing.T) {
	const none = unix.Errno(0)
	for _, name := range defaults {
		p := load(t, name+".json")
		rows := []struct {
			name string
			call seccomptest.Data
			want unix.Errno
		}{
			{"getpid", call(unix.SYS_GETPID), none},
			{"getppid", call(unix.SYS_GETPPID), none},
			{"close of nothing reaches the kernel", call(unix.SYS_CLOSE, 1<<20), unix.EBADF},
			{"personality that is asked for", call(unix.SYS_PERSONALITY, 0xffffffff), none},
			{"personality with another value", call(unix.SYS_PERSONALITY, 0x40000), unix.EPERM},
			{"the low half alone does not count", call(unix.SYS_PERSONALITY, 1<<32|8), unix.EPERM},
			{"mount", call(unix.SYS_MOUNT), unix.EPERM},
			{"keyctl", call(unix.SYS_KEYCTL, 0, ^uint64(2)), unix.EPERM},
			{"unshare of a user namespace", call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER), unix.EPERM},
			{"socket of a family that is allowed", call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 99), unix.EPROTONOSUPPORT},
			{"vsock", call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM), unix.EPERM},
			{"clone of a user namespace", call(unix.SYS_CLONE, unix.CLONE_NEWUSER), unix.EPERM},
			{"clone3, which cannot be looked into", call(unix.SYS_CLONE3), unix.ENOSYS},
			{"a number that no kernel has", call(2000), unix.ENOSYS},
		}
		var calls []seccomptest.Data
		for _, r := range rows {
			calls = append(calls, r.call)
		}
		got, err := inChild(t, job{Parts: []part{{p, calls}}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, r := range rows {
			if got[0][i] != r.want {
				t.Errorf("%s: %s: %v; want %v", name, r.name, got[0][i], r.want)
			}
		}
	}
}

func TestKernelKillsTheProcess(t *testing.T) {
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{"sysinfo"}, Action: specs.ActKillProcess}}}
	_, err := inChild(t, job{Parts: []part{{p, []seccomptest.Data{call(unix.SYS_SYSINFO)}}}})
	var exit *osexec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the child ended with %v", err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGSYS {
		t.Errorf("%v; want SIGSYS", err)
	}
}

func TestKernelKillsTheThreadThatMakesAnX32Call(t *testing.T) {
	if seccomp.Native() != specs.ArchX86_64 {
		t.Skip("x32 is an interface of x86_64")
	}
	p := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{rule("reboot", 1)}}
	if _, err := inChild(t, job{Kill: &part{p, []seccomptest.Data{call(0x40000000 + unix.SYS_GETPID)}}}); err != nil {
		t.Fatal(err)
	}
}

// dieInThread makes a call that must take the thread away.
func (p part) dieInThread() error {
	tids, returned := make(chan int), make(chan error, 1)
	var die func()
	die = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			go die() // the first thread would stay as a zombie; keep it busy
			select {}
		}
		f, err := seccomp.Compile(p.Profile)
		if err == nil {
			_, err = install(f)
		}
		tids <- unix.Gettid()
		if err == nil {
			c := p.Calls[0]
			_, _, errno := unix.RawSyscall(uintptr(c.Nr), uintptr(c.Args[0]), uintptr(c.Args[1]), uintptr(c.Args[2]))
			err = fmt.Errorf("the call returned: %w", errno)
		}
		returned <- err
	}
	go die()
	tid := <-tids
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		select {
		case err := <-returned:
			return err
		default:
		}
		if unix.Tgkill(unix.Getpid(), tid, 0) == unix.ESRCH {
			return nil
		}
		runtime.Gosched()
	}
	return errors.New("the thread is still there")
}

// The interpreter that all other tests rely on is held against the kernel, on
// calls that do nothing and so can be made with any argument.
func TestKernelRunsProgramsAsTheInterpreterDoes(t *testing.T) {
	if seccomp.Native() != specs.ArchX86_64 {
		t.Skip("only x86_64 has calls that are reserved and do nothing")
	}
	idle := []string{"tuxcall", "security", "vserver", "afs_syscall", "getpmsg", "putpmsg"}
	var j job
	var want [][]unix.Errno
	for seed := range uint64(100) {
		r := random(specs.ArchX86_64, seed)
		r.Archs, r.Calls = [][]specs.Arch{nil}, idle
		p := r.Profile()
		p.DefaultAction, p.DefaultErrnoRet = specs.ActAllow, nil
		for i := range p.Syscalls {
			p.Syscalls[i].Action, p.Syscalls[i].ErrnoRet = specs.ActErrno, errno(200+uint(i))
		}
		f, err := seccomp.Compile(p)
		if err != nil {
			continue
		}
		calls := slices.DeleteFunc(r.Inputs(p, specs.ArchX86_64, 60), func(d seccomptest.Data) bool {
			return !slices.ContainsFunc(idle, func(name string) bool { return d.Nr == number(t, specs.ArchX86_64, name) })
		})
		var results []unix.Errno
		for i := range calls {
			calls[i].Arch = seccomptest.Audit[specs.ArchX86_64]
			ret, _, err := seccomptest.Run(f.Program, &calls[i])
			if err != nil {
				t.Fatal(err)
			}
			if ret == allow {
				results = append(results, unix.ENOSYS)
			} else {
				results = append(results, unix.Errno(ret&unix.SECCOMP_RET_DATA))
			}
		}
		j.Parts = append(j.Parts, part{p, calls})
		want = append(want, results)
	}
	got, err := inChild(t, j)
	if err != nil {
		t.Fatal(err)
	}
	calls, denied := 0, 0
	for i := range want {
		for k := range want[i] {
			calls++
			if want[i][k] != unix.ENOSYS {
				denied++
			}
			if got[i][k] != want[i][k] {
				t.Errorf("profile %d, %+v: the kernel says %d, the interpreter %d", i, j.Parts[i].Calls[k], got[i][k], want[i][k])
			}
		}
	}
	t.Logf("%d profiles, %d calls, %d denied", len(want), calls, denied)
	if denied < calls/10 {
		t.Error("too few calls are denied to show anything")
	}
}
