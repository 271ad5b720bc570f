// Package integration drives the shim through a real containerd.
//
// The runtime under test is $IBEX_TEST_RUNTIME, by default the one of this
// module. Every test was first seen to pass with io.containerd.runc.v2, or says
// in a comment why it does not.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

var (
	runtimeName = envOr("IBEX_TEST_RUNTIME", ctd.Runtime)
	keep        = flag.Bool("keep", false, "keep the scratch directory, with containerd's log")

	scratch *ktest.Scratch
	shared  *ctd.Daemon // used by all tests that do not disturb it
	binDir  string
)

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// incumbent tells whether containerd's own shim is under test.
func incumbent() bool { return runtimeName == ctd.Incumbent }

// notIncumbent skips a test of something that the incumbent is known not to do.
func notIncumbent(t *testing.T, why string) {
	t.Helper()
	if incumbent() {
		t.Skipf("known of %s: %s", ctd.Incumbent, why)
	}
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for shims to end, so more than one a CPU can run.
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue {
		_ = n.Value.Set("8")
	}
	if os.Geteuid() != 0 {
		fmt.Println("skipped: the integration tests need root")
		return
	}
	os.Exit(run(m))
}

// run prepares, runs the tests and cleans up. What is left of the run at the
// end is a failure, too.
func run(m *testing.M) (code int) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%5.1fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	var err error
	if scratch, err = ktest.NewScratch("ibex-test-"); err != nil {
		say("clean up after earlier runs: %v", err)
		return 1
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		say("interrupted: cleaning up")
		_ = scratch.Remove()
		os.Exit(1)
	}()
	defer func() {
		if *keep && code != 0 {
			say("kept: %s", scratch.Dir)
			return
		}
		if err := scratch.Remove(); err != nil {
			say("clean up: %v", err)
			code = 1
		}
	}()
	ctx := context.Background()
	if err := prepare(ctx, say); err != nil {
		say("%v", err)
		return 1
	}
	events.follow(shared)
	say("running the tests with %s", runtimeName)
	code = m.Run()
	shared.Stop()
	if log := shimTrouble(shared.Log()); log != "" {
		say("from containerd's log:\n%s", log)
	}
	if left := finalResidue(); len(left) > 0 {
		say("left behind by the run:\n\t%s", strings.Join(left, "\n\t"))
		code = 1
	}
	if code != 0 && *keep {
		say("containerd's log: %s", filepath.Join(shared.Dir, "log"))
	}
	return code
}

func prepare(ctx context.Context, say func(string, ...any)) (err error) {
	binDir = filepath.Join(scratch.Dir, "bin")
	if err := os.Mkdir(binDir, 0o711); err != nil {
		return err
	}
	say("linking containerd, building the shim and the image")
	if err := ctd.Link(binDir, "containerd", "ctr", "containerd-shim-runc-v2", "runc"); err != nil {
		return err
	}
	if !incumbent() {
		if err := ctd.BuildShim(binDir); err != nil {
			return err
		}
	}
	for _, name := range []string{"probe", "logger"} {
		if err := ctd.Build(scratch.Dir, "./tests/cmd/"+name); err != nil {
			return err
		}
	}
	f, err := os.Create(imagePath())
	if err != nil {
		return err
	}
	if err := ctd.WriteImage(f, scratch.Dir, "probe"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	say("starting containerd")
	shared, err = startDaemon(ctx, "main")
	return err
}

func imagePath() string { return filepath.Join(scratch.Dir, "image.tar") }

func startDaemon(ctx context.Context, name string) (*ctd.Daemon, error) {
	return startDaemonOf(ctx, name, binDir)
}

// startDaemonOf starts the containerd of another directory of programs.
func startDaemonOf(ctx context.Context, name, bin string, env ...string) (*ctd.Daemon, error) {
	d, err := ctd.Start(ctx, ctd.Options{Scratch: scratch, Name: name, Bin: bin, Env: env, Debug: *keep})
	if err != nil {
		return nil, err
	}
	return d, d.Import(ctx, imagePath())
}

// finalResidue waits for the last shims to end and lists what does not go away.
// The top cgroup of the run is nobody's and is removed by the clean-up.
func finalResidue() (left []string) {
	r := scratch.Residue()
	_ = ktest.Poll(10*time.Second, func() error {
		left = nil
		for _, l := range r.Left() {
			if !strings.HasPrefix(l, "cgroup ") {
				left = append(left, l)
			}
		}
		for _, d := range ktest.CgroupDirs(r.Cgroup) {
			below, _ := filepath.Glob(d + "/*/cgroup.procs")
			left = append(left, below...)
		}
		if len(left) > 0 {
			return os.ErrExist
		}
		return nil
	})
	return left
}

// shimTrouble picks the lines of a log that show a crash of a shim.
func shimTrouble(log string) string {
	var out []string
	for line := range strings.Lines(log) {
		for _, s := range []string{"panic:", "fatal error:", "DATA RACE", "goroutine 1 ["} {
			if strings.Contains(line, s) {
				out = append(out, strings.TrimSpace(line))
				break
			}
		}
	}
	return strings.Join(out, "\n")
}

var daemonNames struct {
	sync.Mutex
	n int
}

// ownDaemon starts a containerd for a test that disturbs it.
func ownDaemon(t *testing.T) *ctd.Daemon {
	t.Helper()
	return ownDaemonOf(t, binDir)
}

func ownDaemonOf(t *testing.T, bin string, env ...string) *ctd.Daemon {
	t.Helper()
	daemonNames.Lock()
	daemonNames.n++
	name := fmt.Sprintf("d%d", daemonNames.n)
	daemonNames.Unlock()
	d, err := startDaemonOf(t.Context(), name, bin, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Stop()
		if t.Failed() {
			t.Logf("from containerd's log:\n%s", interesting(d.Log()))
		}
	})
	events.follow(d)
	return d
}

// interesting are the last lines of a log without those of containerd's start.
func interesting(log string) string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(log), "\n"), func(l string) bool {
		return strings.Contains(l, "loading plugin") || strings.Contains(l, "load plugin") || strings.Contains(l, "msg=serving")
	})
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
