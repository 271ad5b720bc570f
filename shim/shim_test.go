package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskv2 "github.com/containerd/containerd/api/runtime/task/v2"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The test binary is the shim, too: start executes itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "-namespace" || os.Args[1] == "-info") {
		os.Exit(Run(os.Args))
	}
	if path := os.Getenv("SHIM_TEST_DIAL"); path != "" {
		os.Exit(dialAndAsk(path))
	}
	readerWait = 10 * time.Millisecond
	os.Exit(m.Run())
}

// bundle is a directory in which containerd would start a shim.
type bundle struct {
	dir, id string
	sockets string
	log     *os.File
}

func newBundle(t *testing.T, id, config string) *bundle {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	dir, err := os.MkdirTemp("/tmp", "ibex-test-") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bundle{dir: filepath.Join(dir, id), id: id, sockets: filepath.Join(dir, "s")}
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(b.dir, "log"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b.log, err = os.OpenFile(filepath.Join(b.dir, "log"), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.log.Close() })
	return b
}

// call runs the shim as containerd would.
func (b *bundle) call(t *testing.T, stdin []byte, verb string) []byte {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-namespace", "ns", "-address", "/no.sock", "-publish-binary", "x", "-id", b.id, verb)
	cmd.Dir = b.dir
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", verb, err, errout.Bytes())
	}
	return out.Bytes()
}

// start starts a shim and returns its socket.
func (b *bundle) start(t *testing.T) string {
	t.Helper()
	out := b.call(t, params(t, &bootapi.BootstrapParams{InstanceID: b.id, Namespace: "ns", SocketDir: &b.sockets}), "start")
	var res bootapi.BootstrapResult
	if err := proto.Unmarshal(out, &res); err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(res.Address, "unix://")
}

func connect(t *testing.T, path string) *ttrpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := ttrpc.NewClient(conn)
	t.Cleanup(func() { c.Close() })
	return c
}

func shimPID(t *testing.T, c *ttrpc.Client) int {
	t.Helper()
	res, err := taskv3.NewTTRPCTaskClient(c).Connect(context.Background(), &taskv3.ConnectRequest{ID: "none"})
	if err != nil {
		t.Fatal(err)
	}
	return int(res.ShimPid)
}

// gone waits until the process has ended. It is no child of ours.
func gone(t *testing.T, pid int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("end of shim %d", pid), func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true
		}
		// Its descriptors go with the last thread, not with the first.
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		return bytes.Contains(b, []byte(") Z ")) && (err != nil || len(threads) <= 1)
	})
}

func shutdown(t *testing.T, c *ttrpc.Client) {
	t.Helper()
	pid := shimPID(t, c)
	_, err := taskv3.NewTTRPCTaskClient(c).Shutdown(context.Background(), &taskv3.ShutdownRequest{ID: "none"})
	if err != nil && !errors.Is(err, ttrpc.ErrClosed) {
		t.Fatal(err)
	}
	c.Close()
	gone(t, pid)
}

func TestShimServesItsGroupUntilItIsShutDown(t *testing.T) {
	b := newBundle(t, "c1", `{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}`)
	path := b.start(t)
	if want := socketPath(b.sockets, "/no.sock", "ns", "pod"); path != want {
		t.Errorf("socket %s; want %s", path, want)
	}
	c := connect(t, path)
	if again := b.start(t); again != path {
		t.Errorf("second start of the group: %s; want %s", again, path)
	}
	pid := shimPID(t, c)
	res, err := taskv2.NewTTRPCTaskClient(c).Connect(context.Background(), &taskv2.ConnectRequest{ID: "none"})
	if err != nil || int(res.ShimPid) != pid {
		t.Errorf("version 2 of the service: %v, %v", res, err)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session of the shim: %d, %v; want its own", sid, err)
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(own)))
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(min(n+1, 1000)) {
		t.Errorf("oom_score_adj of the shim: %s, %v; of its parent: %d", got, err, n)
	}
	shutdown(t, c)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after shutdown: %v", err)
	}
}

func TestADaemonBefore20FindsTheShimAfterARestart(t *testing.T) {
	t.Setenv(envMaxVersion, "2") // as 1.7 sets it
	b := newBundle(t, fmt.Sprintf("old-%d", os.Getpid()), "{}")
	var answered struct{ Address string }
	if err := json.Unmarshal(b.call(t, nil, "start"), &answered); err != nil {
		t.Fatal(err)
	}
	c := connect(t, strings.TrimPrefix(answered.Address, "unix://"))
	defer shutdown(t, c)
	left, err := os.ReadFile(filepath.Join(b.dir, "address"))
	if err != nil || string(left) != answered.Address {
		t.Errorf("file address in the bundle: %q, %v; want %q", left, err, answered.Address)
	}
}

func TestWhatIsNotThereHasItsCode(t *testing.T) {
	b := newBundle(t, "c1", `{}`)
	c := connect(t, b.start(t))
	defer shutdown(t, c)
	ctx := context.Background()
	task := taskv3.NewTTRPCTaskClient(c)
	for name, tt := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"state of an unknown container": {func() error { _, err := task.State(ctx, &taskv3.StateRequest{ID: "x"}); return err }, codes.NotFound},
		"pids of an unknown container":  {func() error { _, err := task.Pids(ctx, &taskv3.PidsRequest{ID: "x"}); return err }, codes.NotFound},
		"kill of an unknown container":  {func() error { _, err := task.Kill(ctx, &taskv3.KillRequest{ID: "x", Signal: 9}); return err }, codes.NotFound},
		"checkpoint":                    {func() error { _, err := task.Checkpoint(ctx, &taskv3.CheckpointTaskRequest{}); return err }, codes.Unimplemented},
		"restore":                       {func() error { _, err := task.Create(ctx, &taskv3.CreateTaskRequest{Checkpoint: "/x"}); return err }, codes.Unimplemented},
		"the sandbox API": {func() error {
			return c.Call(ctx, "containerd.runtime.sandbox.v1.Sandbox", "CreateSandbox", &taskv3.StateRequest{}, &taskv3.StateResponse{})
		}, codes.Unimplemented},
	} {
		if err := tt.call(); status.Code(err) != tt.want {
			t.Errorf("%s: %v; want %v", name, err, tt.want)
		}
	}
}

func TestDeleteReportsWhatItCanAndRemovesTheSocket(t *testing.T) {
	b := newBundle(t, "c1", `{}`)
	path := b.start(t)
	c := connect(t, path)
	pid := shimPID(t, c)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	for range 2 {
		var res taskv3.DeleteResponse
		if err := proto.Unmarshal(b.call(t, nil, "delete"), &res); err != nil {
			t.Fatal(err)
		}
		if res.ExitStatus != 137 || res.ExitedAt == nil {
			t.Errorf("delete = %v; want status 137 and a time", &res)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("socket after delete: %v", err)
		}
	}
}

func TestASignalEndsTheShimOrDumpsItsStacks(t *testing.T) {
	b := newBundle(t, "c1", `{}`)
	path := b.start(t)
	pid := shimPID(t, connect(t, path))
	if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if err := b.log.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	for !bytes.Contains(buf, []byte("goroutine stack dump")) {
		if _, err := b.log.Read(buf); err != nil {
			t.Fatalf("no dump in the log: %v", err)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGPIPE, unix.SIGTERM} {
		if err := unix.Kill(pid, sig); err != nil {
			t.Fatalf("signal %v: %v", sig, err)
		}
	}
	gone(t, pid)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after SIGTERM: %v", err)
	}
}

func TestOnlyRootMayTalkToTheShim(t *testing.T) {
	b := newBundle(t, "c1", `{}`)
	path := b.start(t)
	c := connect(t, path)
	defer shutdown(t, c)
	for _, p := range []string{filepath.Dir(filepath.Dir(path)), filepath.Dir(path), path} {
		if err := os.Chmod(p, 0o777); err != nil { // as if the mode were no help
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(filepath.Dir(b.dir), "shim.test")
	if err := exec.Command("cp", self, bin).Run(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		attr *syscall.SysProcAttr
		want string
	}{
		"root":                            {&syscall.SysProcAttr{}, "answered"},
		"another user":                    {&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}, "refused"},
		"root in a PID namespace":         {&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}, "refused"},
		"root in another mount namespace": {&syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, "answered"},
	} {
		cmd := exec.Command(bin)
		cmd.Env = append(os.Environ(), "SHIM_TEST_DIAL="+path)
		cmd.SysProcAttr = tt.attr
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != tt.want {
			t.Errorf("%s: %s, %v; want %s", name, out, err, tt.want)
		}
	}
}

func dialAndAsk(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := taskv3.NewTTRPCTaskClient(ttrpc.NewClient(conn)).Connect(ctx, &taskv3.ConnectRequest{}); err != nil {
		fmt.Print("refused")
	} else {
		fmt.Print("answered")
	}
	return 0
}

func TestInfoNamesTheRuntimeAndItsFeatures(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, "-info").Output()
	if err != nil {
		t.Fatal(err)
	}
	var ri types.RuntimeInfo
	if err := proto.Unmarshal(out, &ri); err != nil {
		t.Fatal(err)
	}
	if ri.Name != RuntimeName || ri.Features.GetTypeUrl() != featuresURL || !bytes.Contains(ri.Features.GetValue(), []byte("ociVersionMax")) {
		t.Errorf("info = %v", &ri)
	}
}

func TestFlagsOfEveryDaemonAreKnown(t *testing.T) {
	f, err := parseFlags([]string{"shim", "-namespace", "n", "-address", "a", "-publish-binary", "p", "-id", "i", "-bundle", "b", "-debug", "-socket", "s", "-debug-socket", "d", "delete", "more"})
	want := flags{namespace: "n", address: "a", id: "i", bundle: "b", debug: true, socket: "s", debugSocket: "d", action: "delete"}
	if err != nil || f != want {
		t.Errorf("parseFlags() = %+v, %v; want %+v", f, err, want)
	}
}
