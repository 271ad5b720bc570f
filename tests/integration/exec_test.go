package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/internal/ktest"
)

func TestExecGivesOutputAndCode(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r := b.exec("sh", "-c", "echo out; echo err >&2; exit 9")
	if r != (result{9, "out\n", "err\n"}) {
		t.Errorf("got %v", r)
	}
	wantOrder(t, events.wait(t, b.id, "exit e1 9"), "exec-added e1", "exec-started e1", "exit e1 9")
}

func TestExecWithATerminal(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r := b.execWith(execSpec{tty: true, args: []string{"sh", "-c", "tty; test -t 0 && test -t 1 && test -t 2 && echo yes; exit 5"}})
	if r.code != 5 || !strings.HasPrefix(r.out, "/dev/pts/") || !strings.HasSuffix(r.out, "yes\r\n") {
		t.Errorf("got %v", r)
	}
}

// Clients hand over the description of the first process, with other streams.
func TestTheRequestDecidesAboutTheTerminalOfAnExec(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r := b.execWith(execSpec{tty: true, args: []string{"tty"}, edit: func(p *specs.Process) { p.Terminal = false }})
	if r.code != 0 || !strings.HasPrefix(r.out, "/dev/pts/") {
		t.Errorf("got %v", r)
	}
}

func TestExecTakesEnvironmentDirectoryAndUser(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r := b.execWith(execSpec{
		args: []string{"sh", "-c", `echo "$FOO $(pwd) $(id -u) $(id -g) $(id -G)"`},
		edit: func(p *specs.Process) {
			p.Env = append(p.Env, "FOO=a b")
			p.Cwd = "/home/user"
			p.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{2000, 3000}}
		},
	})
	if r.out != "a b /home/user 1000 1000 1000 2000 3000\n" {
		t.Errorf("got %v", r)
	}
}

// moby/moby#38865
func TestExecWithoutExtraGroupsHasNone(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	r := b.execWith(execSpec{args: []string{"id", "-G"}, edit: func(p *specs.Process) {
		p.User = specs.User{UID: 1000, GID: 1000}
	}})
	if r.out != "1000\n" {
		t.Errorf("got %v", r)
	}
}

// missing are commands that do not exist, with the text that callers map to
// exit code 127.
var missing = []struct {
	name string
	args []string
	path string // PATH; "-" for none
	want string
}{
	{"a name not in PATH", []string{"nope"}, "/bin:/usr/bin", `executable file not found in $PATH`},
	{"an absolute path", []string{"/nope"}, "/bin", "no such file or directory"},
	{"a relative path", []string{"./nope"}, "/bin", "no such file or directory"},
	{"below a missing directory", []string{"/nope/nope"}, "/bin", "no such file or directory"},
	{"a dangling link", []string{"/odd/dangling"}, "/bin", "no such file or directory"},
	{"no PATH", []string{"nope"}, "-", `executable file not found in $PATH`},
	{"an empty PATH", []string{"nope"}, "", `executable file not found in $PATH`},
	{"a name only in a directory not in PATH", []string{"script"}, "/bin", `executable file not found in $PATH`},
}

// setPath replaces PATH in an environment; "-" removes it.
func setPath(env []string, path string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "PATH=") })
	if path == "-" {
		return env
	}
	return append(env, "PATH="+path)
}

// containers/crun#1688, opencontainers/runc#591: a missing command came back
// as some exit code.
func TestExecOfAMissingCommandFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	b.ok("true")
	before := ktest.ReadFootprint(b.shimPID)
	for _, m := range missing {
		t.Run(m.name, func(t *testing.T) {
			err := b.in(t).failExec(execSpec{args: m.args, id: "m", edit: func(p *specs.Process) { p.Env = setPath(p.Env, m.path) }})
			wantError(t, err, nil, m.args[0], m.want)
		})
	}
	if out := b.ok("echo", "still"); out != "still\n" {
		t.Errorf("the next exec prints %q", out)
	}
	for _, e := range events.of(b.id) {
		if strings.HasPrefix(e, "exec-started m") || strings.HasPrefix(e, "exit m") {
			t.Errorf("event %q for a process that never started", e)
		}
	}
	b.steady(before)
}

type cannotRun struct {
	name, path string
	want       []string // one of them
	not        string
}

// check skips what the incumbent reports as started, with exit code 255.
func (c cannotRun) check(t *testing.T) {
	switch c.path {
	case "/odd/noshebang", "/odd/empty", "/odd/nointerp", "/odd/crlf":
		notIncumbent(t, "execve fails after start was reported")
	}
}

// unrunnable are files that exist but cannot be executed.
var unrunnable = []cannotRun{
	{"a directory", "/odd/dir", []string{"permission denied", "is a directory"}, "no such file"},
	{"a file without x", "/odd/plain", []string{"permission denied"}, "no such file"},
	{"a file without any mode", "/odd/nomode", []string{"permission denied"}, "no such file"},
	{"a file on a noexec mount", "/noexec/script", []string{"permission denied"}, "no such file"},
	{"below a file", "/odd/plain/x", []string{"not a directory"}, ""},
	{"a file that is no program", "/odd/noshebang", []string{"exec format error"}, ""},
	{"an empty file", "/odd/empty", []string{"exec format error"}, ""},
	{"a script without its interpreter", "/odd/nointerp", []string{"no such file or directory"}, ""},
	{"a script with a carriage return", "/odd/crlf", []string{"no such file or directory"}, ""},
	{"a loop of links", "/odd/loop", []string{"too many levels of symbolic links"}, ""},
}

func checkUnrunnable(t *testing.T, err error, path string, want []string, not string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	wantError(t, err, nil, path)
	if !slices.ContainsFunc(want, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		t.Errorf("error %q says none of %q", short(fmt.Sprint(err)), want)
	}
	if not != "" && strings.Contains(err.Error(), not) {
		t.Errorf("error %q says %q", err, not)
	}
}

// noexecMount is a tmpfs without execution.
var noexecMount = specs.Mount{Destination: "/noexec", Type: "tmpfs", Source: "tmpfs", Options: []string{"noexec", "nosuid"}}

// containers/crun#511, moby/moby#40859, opencontainers/runc#1773
func TestExecOfAFileThatCannotRunFails(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{spec: withMounts(noexecMount)})
	b.ok("cp", "/odd/script", "/noexec/script")
	for _, uid := range []uint32{0, 1000} {
		for _, u := range unrunnable {
			t.Run(fmt.Sprintf("%s as %d", u.name, uid), func(t *testing.T) {
				u.check(t)
				err := b.in(t).failExec(execSpec{args: []string{u.path}, edit: func(p *specs.Process) { p.User.UID, p.User.GID = uid, uid }})
				checkUnrunnable(t, err, u.path, u.want, u.not)
			})
		}
	}
}

// A message that says only that the script was not found sends people looking
// for a file that is there.
//
// moby/moby#40859
func TestTheErrorNamesTheMissingInterpreter(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "it names the script only")
	b := startBox(t, boxSpec{})
	err := b.failExec(execSpec{args: []string{"/odd/nointerp"}})
	wantError(t, err, nil, "/odd/nointerp", "/mmnnttbb")
	if n := strings.Count(err.Error(), "no such file or directory"); n != 1 {
		t.Errorf("error %q says it %d times", err, n)
	}
}

func TestExecInAMissingDirectoryNamesIt(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	err := b.failExec(execSpec{args: []string{"true"}, edit: func(p *specs.Process) { p.Cwd = "/no/such/dir" }})
	wantError(t, err, nil, "/no/such/dir")
	b.ok("true")
}

func TestExecFindsACommandAlongPath(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	b.ok("sh", "-c", "mkdir -p /p/a /p/b /p/c /p/d; mkdir /p/b/cmd; touch /p/c/cmd; printf '#!/bin/sh\necho found\n' > /p/d/cmd; chmod 755 /p/d/cmd")
	r := b.execWith(execSpec{args: []string{"cmd"}, edit: func(p *specs.Process) {
		// A missing directory, one without it, a directory of that name, a file
		// without x: all are passed over.
		p.Env = setPath(p.Env, "/p/none:/p/a:/p/b:/p/c:/p/d")
	}})
	if r != (result{0, "found\n", ""}) {
		t.Errorf("got %v", r)
	}
	err := b.failExec(execSpec{args: []string{"cmd"}, edit: func(p *specs.Process) { p.Env = setPath(p.Env, "/p/c:/p/none") }})
	if !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Errorf("error %q", err)
	}
}

// containerd/containerd#10094: the exit was held back until the last holder of
// the output closed it.
func TestABackgroundChildDoesNotHoldBackTheExit(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	p := b.startExec(execSpec{args: []string{"sh", "-c", "sleep 1000 & echo ok"}})
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.out.waitFor(t, "ok\n")
	events.wait(t, b.id, "exit "+p.id+" 0")
	// The client's own Delete waits for the end of the output.
	_, err := b.d.Client.TaskService().DeleteProcess(b.ctx, &tasks.DeleteProcessRequest{ContainerID: b.id, ExecID: p.id})
	if err != nil {
		t.Errorf("delete: %v", err)
	}
	p.p.IO().Cancel()
	p.p.IO().Close()
	if out := b.ok("pidof", "sleep"); len(strings.Fields(out)) != 2 {
		t.Errorf("sleeping: %q, want init and the child", out)
	}
}

// kubernetes/kubernetes#124226
func TestAKilledExecEndsPromptly(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	p := b.startExec(execSpec{args: []string{"sh", "-c", "echo up; sleep 1000; true"}})
	p.out.waitFor(t, "up")
	if err := p.p.Kill(b.ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 137 {
		t.Errorf("exit code %d, want 137", code)
	}
	events.wait(t, b.id, "exit "+p.id+" 137")
}

// opencontainers/runc#5208: the exit of a process that ended before its start
// was recorded got lost.
func TestShortExecsAreAllReported(t *testing.T) {
	t.Parallel()
	const rounds, width = 25, 8
	b := startBox(t, boxSpec{})
	b.ok("true")
	before := ktest.ReadFootprint(b.shimPID)
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			for r := range rounds {
				cmd, want := "true", uint32(0)
				if (w+r)%2 == 1 {
					cmd, want = "false", 1
				}
				p, err := b.tryExec(execSpec{args: []string{cmd}, id: fmt.Sprintf("s%d-%d", w, r)})
				if err != nil {
					t.Errorf("exec: %v", err)
					return
				}
				if err := p.p.Start(b.ctx); err != nil {
					t.Errorf("start: %v", err)
					return
				}
				st := <-p.exited
				if st.ExitCode() != want || st.Error() != nil {
					t.Errorf("%s: code %d, %v", cmd, st.ExitCode(), st.Error())
				}
				if _, err := p.p.Delete(b.ctx); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for w := range width {
		for r := range rounds {
			id := fmt.Sprintf("s%d-%d", w, r)
			wantOrder(t, events.wait(t, b.id, fmt.Sprintf("exit %s %d", id, (w+r)%2)),
				"exec-added "+id, "exec-started "+id, fmt.Sprintf("exit %s %d", id, (w+r)%2))
		}
	}
	(ktest.Residue{Parents: []int{b.shimPID}}).Check(t, prompt)
	b.steady(before)
}

// opencontainers/runc#1430
func TestParallelExecsKeepTheirOutput(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprintf("%d ", i), 50)
			if r := b.exec("echo", text); r.out != text+"\n" || r.code != 0 {
				t.Errorf("exec %d: %v", i, r)
			}
		})
	}
	wg.Wait()
}

// containerd/containerd#4434
func TestLargeArgumentsAndEnvironments(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	many := make([]string, 1024)
	for i := range many {
		many[i] = fmt.Sprintf("V%04d=%s", i, strings.Repeat("v", 1018))
	}
	r := b.execWith(execSpec{args: []string{"sh", "-c", "env | grep -c ^V"}, edit: func(p *specs.Process) { p.Env = append(p.Env, many...) }})
	if r.out != "1024\n" {
		t.Errorf("1 MB of environment: %v", r)
	}
	notIncumbent(t, "execve fails after start was reported")
	err := b.failExec(execSpec{args: append([]string{"true"}, append(append(many, many...), many...)...)})
	wantError(t, err, nil, "argument list too long")
	if len(err.Error()) > 10000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	err = b.failExec(execSpec{args: []string{"/" + strings.Repeat("n", 100<<10)}})
	wantError(t, err, nil, "file name too long")
	if len(err.Error()) > 10000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	b.ok("true")
}

func TestADuplicateExecIDIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	p := b.startExec(execSpec{args: []string{"sleep", "1000"}, id: "twin"})
	_, err := b.tryExec(execSpec{args: []string{"true"}, id: "twin"})
	wantError(t, err, errdefs.ErrAlreadyExists)
	if err := p.p.Kill(b.ctx, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.finish()
	if r := b.execWith(execSpec{args: []string{"true"}, id: "twin"}); r.code != 0 {
		t.Errorf("the id after its deletion: %v", r)
	}
}

func TestAnExecThatWasNeverStartedIsDeleted(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	b.ok("true")
	before := ktest.ReadFootprint(b.shimPID)
	for range 3 {
		p := b.addExec(execSpec{args: []string{"true"}, id: "unstarted"})
		if _, err := p.p.Delete(b.ctx); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	b.steady(before)
}

func TestKillOfAnExecBeforeItsStartIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	p := b.addExec(execSpec{args: []string{"true"}})
	wantError(t, p.p.Kill(b.ctx, syscall.SIGKILL), nil)
	if err := p.p.Start(b.ctx); err != nil {
		t.Errorf("start after it: %v", err)
	}
	if r := p.finish(); r.code != 0 {
		t.Errorf("got %v", r)
	}
}

// containerd/containerd#8557
func TestExecAfterTheExitOfInitIsRefused(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	early := b.addExec(execSpec{args: []string{"true"}, id: "early"})
	b.kill(syscall.SIGKILL)
	b.wait()
	events.wait(t, b.id, "exit 137")
	wantError(t, early.p.Start(b.ctx), nil)
	if _, err := b.tryExec(execSpec{args: []string{"true"}, id: "late"}); err == nil {
		t.Error("exec in a stopped container was accepted")
	}
	if _, err := early.p.Delete(b.ctx); err != nil && !errdefs.IsNotFound(err) {
		t.Errorf("delete: %v", err)
	}
	if s := b.status(); s != containerd.Stopped {
		t.Errorf("status %s", s)
	}
}

// opencontainers/runc#3707, opencontainers/runc#280: the host's /dev/null was
// given away; others could not open their own output.
func TestExecAsAnotherUserLeavesDevNullAndOwnsItsOutput(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	asUser := func(p *specs.Process) { p.User.UID, p.User.GID = 1000, 1000 }
	r := b.execWith(execSpec{args: []string{"sh", "-c", "echo x > /dev/stdout; echo y > /dev/stderr"}, edit: asUser})
	if r != (result{0, "x\n", "y\n"}) {
		t.Errorf("got %v", r)
	}
	if out := b.ok("stat", "-c", "%u:%g", "/dev/null"); out != "0:0\n" {
		t.Errorf("/dev/null of the container belongs to %s", out)
	}
	var st syscall.Stat_t
	if err := syscall.Stat("/dev/null", &st); err != nil || st.Uid != 0 || st.Gid != 0 {
		t.Errorf("/dev/null of the host belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// moby/moby#39118 and others: descriptors leaked with every exec.
func TestTheShimDoesNotGrowWithExecs(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{})
	use := func(n int) {
		for range n {
			b.ok("echo", "x")
			b.execWith(execSpec{args: []string{"echo", "x"}, tty: true})
			b.failExec(execSpec{args: []string{"nope"}})
			if _, err := b.task.Metrics(b.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	use(2)
	before := ktest.ReadFootprint(b.shimPID)
	use(15)
	b.steady(before)
	(ktest.Residue{Parents: []int{b.shimPID}}).Check(t, prompt)
}

// moby/moby#34683: what an exec left behind became zombies of the shim.
func TestOrphansOfAnExecAreReaped(t *testing.T) {
	t.Parallel()
	b := startBox(t, boxSpec{
		args: []string{"sh", "-c", "while :; do sleep 1000 & wait $!; done"},
		spec: hostPID(),
	})
	b.ok("sh", "-c", "(sleep 0.2 &); (sleep 0.3 &)")
	(ktest.Residue{Parents: []int{b.shimPID}}).Check(t, prompt)
	b.stop()
}

func TestInitThatCannotRunFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, m := range missing {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, boxSpec{args: m.args, spec: editProcess(func(p *specs.Process) { p.Env = setPath(p.Env, m.path) })})
			wantError(t, b.failStart(), nil, m.args[0], m.want)
		})
	}
	for _, u := range unrunnable {
		if strings.HasPrefix(u.path, "/noexec") {
			continue // empty before the start
		}
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			u.check(t)
			b := newBox(t, boxSpec{args: []string{u.path}})
			checkUnrunnable(t, b.failStart(), u.path, u.want, u.not)
		})
	}
}
