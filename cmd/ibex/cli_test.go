package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ibex-cli-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "ibex")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// cli is a bundle and a state directory for the program.
type cli struct {
	t         *testing.T
	dir, root string
	spec      *specs.Spec
}

// newCLI makes a bundle with busybox as its root and args as its process.
func newCLI(t *testing.T, args ...string) *cli {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skipf("needs a static busybox: %v", err)
	}
	c := &cli{t: t, dir: t.TempDir()}
	c.root = filepath.Join(c.dir, "state")
	for _, d := range []string{"bin", "tmp", "proc", "sys", "dev", "etc"} {
		if err := os.MkdirAll(filepath.Join(c.dir, "rootfs", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "rootfs/bin/busybox"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"sh", "cat", "true", "sleep", "echo", "env", "ls", "kill", "tty", "id"} {
		if err := os.Symlink("busybox", filepath.Join(c.dir, "rootfs/bin", a)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(binary, "spec", "-b", c.dir).CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	c.change(func(s *specs.Spec) {
		s.Process.Args, s.Process.Terminal, s.Root.Readonly = args, false, false
		s.Linux.CgroupsPath = "/ibex-cli-test/" + strings.ToLower(t.Name())
	})
	t.Cleanup(func() {
		out, _, _ := c.run("list", "-q")
		for _, id := range strings.Fields(out) {
			if _, e, code := c.run("delete", "-f", id); code != 0 {
				t.Errorf("delete %s: %s", id, e)
			}
		}
	})
	return c
}

// change rewrites config.json.
func (c *cli) change(f func(*specs.Spec)) {
	c.t.Helper()
	name := filepath.Join(c.dir, "config.json")
	data, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.spec = &specs.Spec{}
	if err := json.Unmarshal(data, c.spec); err != nil {
		c.t.Fatal(err)
	}
	f(c.spec)
	if data, err = json.Marshal(c.spec); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cli) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append([]string{"--root", c.root}, args...)...)
	cmd.Dir = c.dir
	return cmd
}

// run runs the program and returns what it says and its exit code. Output goes
// through files: a detached container keeps them open.
func (c *cli) run(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	return c.finish(c.command(args...))
}

func (c *cli) finish(cmd *exec.Cmd) (stdout, stderr string, code int) {
	c.t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp(c.t.TempDir(), "")
		if err != nil {
			c.t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	out, _ := os.ReadFile(files[0].Name())
	said, _ := os.ReadFile(files[1].Name())
	return string(out), string(said), cmd.ProcessState.ExitCode()
}

// must runs the program, which has to succeed.
func (c *cli) must(args ...string) string {
	c.t.Helper()
	out, said, code := c.run(args...)
	if code != 0 {
		c.t.Fatalf("ibex %v: exit %d: %s", args, code, said)
	}
	return out
}

func (c *cli) status(id string) string {
	c.t.Helper()
	var s specs.State
	if err := json.Unmarshal([]byte(c.must("state", id)), &s); err != nil {
		c.t.Fatal(err)
	}
	return string(s.Status)
}

// await polls until the container has a status.
func (c *cli) await(id, want string) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if c.status(id) == want {
			return
		}
	}
	c.t.Fatalf("container is %s, want %s", c.status(id), want)
}

func TestRunGivesTheOutputAndTheExitCode(t *testing.T) {
	c := newCLI(t, "sh", "-c", "echo out; echo err >&2; exit 42")
	out, said, code := c.run("run", "a")
	if out != "out\n" || said != "err\n" || code != 42 {
		t.Errorf("output %q, error %q, exit code %d", out, said, code)
	}
	if got := c.must("list", "-q"); got != "" {
		t.Errorf("left: %q", got)
	}
	if _, _, code := c.run("run", "--keep", "b"); code != 42 || c.status("b") != "stopped" {
		t.Errorf("exit code %d", code)
	}
}

func TestTheLifecycleByVerbs(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	c.must("create", "--pid-file", "pid", "a")
	var s specs.State
	if err := json.Unmarshal([]byte(c.must("state", "a")), &s); err != nil {
		t.Fatal(err)
	}
	pid, _ := os.ReadFile(filepath.Join(c.dir, "pid"))
	if s.Status != specs.StateCreated || fmt.Sprint(s.Pid) != string(pid) || s.Bundle != c.dir || s.ID != "a" {
		t.Errorf("%+v, PID file %q", s, pid)
	}
	if _, said, code := c.run("create", "a"); code != 1 || !strings.Contains(said, "already exists") {
		t.Errorf("exit code %d, %q", code, said)
	}
	if _, said, code := c.run("delete", "a"); code != 1 || !strings.Contains(said, "not stopped") {
		t.Errorf("delete of a created container: exit code %d, %q", code, said)
	}
	c.must("start", "a")
	if _, _, code := c.run("start", "a"); code != 1 {
		t.Errorf("second start: exit code %d", code)
	}
	c.must("pause", "a")
	if got := c.status("a"); got != "paused" {
		t.Errorf("status %s", got)
	}
	if _, said, code := c.run("exec", "a", "true"); code != 255 || !strings.Contains(said, "paused") {
		t.Errorf("exec while paused: exit code %d, %q", code, said)
	}
	c.must("resume", "a")
	if got := c.must("ps", "-f", "json", "a"); strings.TrimSpace(got) != "["+string(pid)+"]" {
		t.Errorf("ps: %s", got)
	}
	if got := c.must("ps", "a"); !strings.Contains(got, "sleep 1000") || strings.Count(got, "\n") != 2 {
		t.Errorf("ps: %s", got)
	}
	c.must("kill", "a", "KILL")
	c.await("a", "stopped")
	if _, said, code := c.run("kill", "a"); code != 1 || !strings.Contains(said, "container not running") {
		t.Errorf("exit code %d, %q", code, said)
	}
	c.must("kill", "--all", "a", "0")
	c.must("delete", "a")
	if _, said, code := c.run("state", "a"); code != 1 || !strings.Contains(said, "does not exist") {
		t.Errorf("exit code %d, %q", code, said)
	}
	c.must("delete", "--force", "a")
}

func TestDeleteTakesMany(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	for _, id := range []string{"a", "b"} {
		c.change(func(s *specs.Spec) { s.Linux.CgroupsPath = "/ibex-cli-test/many-" + id })
		c.must("run", "-d", id)
	}
	if got := c.must("list", "-q"); got != "a\nb\n" {
		t.Errorf("list: %q", got)
	}
	var all []struct{ ID, Status, Rootfs string }
	if err := json.Unmarshal([]byte(c.must("list", "-f", "json")), &all); err != nil || len(all) != 2 || all[1].Status != "running" {
		t.Errorf("%v %v", all, err)
	}
	c.must("delete", "--force", "a", "b")
	if got := c.must("list", "-q"); got != "" {
		t.Errorf("left: %q", got)
	}
}

func TestExitCodesOfExec(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	if err := os.WriteFile(filepath.Join(c.dir, "rootfs/etc/plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.must("run", "-d", "a")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"sh", "-c", "exit 42"}, 42, ""},
		{[]string{"sh", "-c", "kill -9 $$"}, 137, ""},
		{[]string{"nowhere"}, 127, "executable file not found in $PATH"},
		{[]string{"/no/where"}, 127, "no such file or directory"},
		{[]string{"/etc/plain"}, 126, "permission denied"},
	} {
		_, said, code := c.run(append([]string{"exec", "a"}, tt.args...)...)
		if code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%v: exit code %d, want %d; %q", tt.args, code, tt.code, said)
		}
	}
	for _, args := range [][]string{{"exec", "nobody", "true"}, {"exec", "a"}, {"exec", "--pid-file", "/no/where", "a", "true"}} {
		if _, said, code := c.run(args...); code != 255 {
			t.Errorf("%v: exit code %d, want 255; %q", args, code, said)
		}
	}
}

func TestExecFlagsChangeTheProcess(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	c.must("run", "-d", "a")
	out := c.must("exec", "-e", "A=b", "--cwd", "/tmp", "-u", "7:8", "-g", "9", "a", "sh", "-c", "pwd; id; echo $A")
	if want := "/tmp\nuid=7 gid=8 groups=8,9\nb\n"; !strings.HasPrefix(out, "/tmp\nuid=7 gid=8") || !strings.HasSuffix(out, "9\nb\n") {
		t.Errorf("got %q, want %q", out, want)
	}
	file := filepath.Join(c.dir, "process.json")
	p, _ := json.Marshal(specs.Process{Args: []string{"/bin/echo", "from a file"}, Cwd: "/"})
	if err := os.WriteFile(file, p, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := c.must("exec", "-p", file, "a"); out != "from a file\n" {
		t.Errorf("got %q", out)
	}
	if _, said, code := c.run("exec", "--cgroup", "../x", "a", "true"); code != 255 || !strings.Contains(said, "bad sub cgroup path") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestDescriptorsArePassedOn(t *testing.T) {
	c := newCLI(t, "sh", "-c", "cat <&3; cat <&4; ls /proc/self/fd")
	var files []*os.File
	for _, text := range []string{"three ", "four "} {
		f, err := os.CreateTemp(c.dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteString(text)
		files = append(files, f)
	}
	for _, args := range [][]string{{"run", "--preserve-fds", "2", "a"}, {"run", "b"}} {
		for _, f := range files {
			f.Seek(0, 0)
		}
		cmd := c.command(args...)
		cmd.ExtraFiles = files
		out, said, code := c.finish(cmd)
		want, err := "three four 0\n1\n2\n3\n4\n5\n", ""
		if len(args) == 2 { // nothing that was not asked for
			want, err = "0\n1\n2\n3\n", "Bad file descriptor"
		}
		if out != want || !strings.Contains(said, err) {
			t.Errorf("%v: exit code %d, output %q, want %q; %q", args, code, out, want, said)
		}
	}
	if _, said, code := c.run("run", "--preserve-fds", "2", "c"); code != 1 || !strings.Contains(said, "descriptor 3 is not open") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestErrorsGoToTheJSONLog(t *testing.T) {
	c := newCLI(t, "/no/where")
	log := filepath.Join(c.dir, "log.json")
	cmd := c.command("--log", log, "--log-format", "json", "create", "a")
	_, said, code := c.finish(cmd)
	if code != 127 || !strings.Contains(said, "no such file or directory") {
		t.Errorf("exit code %d, %q", code, said)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	var e struct{ Level, Msg, Time string }
	if err := json.Unmarshal(lines[len(lines)-1], &e); err != nil || e.Level != "error" || !strings.Contains(e.Msg, `exec: "/no/where": stat /no/where: no such file or directory`) {
		t.Errorf("%s %v", data, err)
	}
	if got := c.must("list", "-q"); got != "" {
		t.Errorf("left: %q", got)
	}
}

func TestEventsAndUpdate(t *testing.T) {
	c := newCLI(t, "sleep", "1000")
	c.change(func(s *specs.Spec) { n := int64(64 << 20); s.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &n} })
	c.must("run", "-d", "a")
	c.must("update", "--memory", "32m", "--pids-limit", "20", "a")
	var e struct {
		Type, ID string
		Data     struct {
			Memory struct{ Usage struct{ Limit uint64 } }
			Pids   struct{ Current, Limit uint64 }
			CPU    struct{ Usage struct{ Total uint64 } }
		}
	}
	if err := json.Unmarshal([]byte(c.must("events", "--stats", "a")), &e); err != nil {
		t.Fatal(err)
	}
	if e.Type != "stats" || e.ID != "a" || e.Data.Memory.Usage.Limit != 32<<20 || e.Data.Pids.Limit != 20 || e.Data.Pids.Current != 1 {
		t.Errorf("%+v", e)
	}
	follow := c.command("events", "--interval", "10ms", "a")
	var said bytes.Buffer
	follow.Stderr = &said
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it follows by now
		t.Fatal(err)
	}
	go io.Copy(io.Discard, out)
	c.must("kill", "a", "KILL")
	if err := follow.Wait(); err != nil {
		t.Errorf("events does not end well with its container: %v: %s", err, said.Bytes())
	}
}

func TestWhatIsNotThereIsRefused(t *testing.T) {
	c := newCLI(t, "true")
	for _, args := range [][]string{{"checkpoint", "a"}, {"restore", "a"}, {"run", "--no-pivot", "a"}, {"--rootless=true", "list"}, {"--log-format", "xml", "list"}} {
		if _, said, code := c.run(args...); code != 1 || said == "" {
			t.Errorf("%v: exit code %d, %q", args, code, said)
		}
	}
	var f struct{ Hooks []string }
	if err := json.Unmarshal([]byte(c.must("features")), &f); err != nil || !slices.Contains(f.Hooks, "poststop") {
		t.Errorf("features: %v %v", f, err)
	}
	if out := c.must("--version"); !strings.HasPrefix(out, "ibex version ") {
		t.Errorf("version: %q", out)
	}
}

func TestAnUnknownVerbIsNamed(t *testing.T) {
	c := newCLI(t, "true")
	if _, said, code := c.run("foo", "-h"); code != 1 || !strings.Contains(said, "'foo'") || !strings.Contains(said, "--help") {
		t.Errorf("exit code %d, %q", code, said)
	}
}
