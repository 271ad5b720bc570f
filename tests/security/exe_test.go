package security

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// A program of the container that says "#!/proc/self/exe" is executed by the
// runtime's own binary, for that is what the process is at this moment. As it is
// dumpable then, any process of the container may open /proc/PID/exe, keep the
// file until nobody executes it any more, and write to it: the next container on
// the host is started by the attacker (CVE-2019-5736). No capability beyond the
// default ones is needed.
func TestAContainerCannotChangeTheRuntimesProgram(t *testing.T) {
	dir := t.TempDir()
	must(t, ctd.Build(dir, "./cmd/ibex"))
	ibex := filepath.Join(dir, "ibex")
	if real, err := filepath.EvalSymlinks(ibex); err == nil && real != ibex {
		must(t, os.Remove(ibex)) // it may be changed: not the one that others use
		must(t, copyFile(real, ibex))
	}
	before, err := os.ReadFile(ibex)
	must(t, err)

	b := newBox(t, "/bin/spy", "exe")
	ktest.Tree(t, b.root, "0755 bin/entry = #!/proc/self/exe state")
	data, err := json.Marshal(b.spec)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600))
	state := filepath.Join(dir, "state")
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), ibex, append([]string{"--root", state}, args...)...).CombinedOutput()
		return string(out), err
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	must(t, err)
	defer said.Close()
	cmd := exec.CommandContext(t.Context(), ibex, "--root", state, "create", "--bundle", b.dir, b.id)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		t.Fatalf("create: %v: %s", err, text)
	}
	defer func() {
		if out, err := run("delete", "--force", b.id); err != nil {
			t.Errorf("delete: %v: %s", err, out)
		}
	}()
	if out, err := run("start", b.id); err != nil {
		t.Fatalf("start: %v: %s", err, out)
	}
	report := func() string {
		text, _ := os.ReadFile(said.Name())
		return string(text)
	}
	begin := time.Now()
	for !strings.Contains(report(), "held") && time.Since(begin) < 10*time.Second*ktest.Slow() {
		run("exec", b.id, "/bin/entry") //nolint:errcheck // what it makes of it is its business
	}
	if !strings.Contains(report(), "held") {
		t.Skipf("the runtime's program was never to be had: %q", report())
	}
	ktest.Eventually(t, 10*time.Second*ktest.Slow(), "the spy to try", func() error {
		if strings.Count(report(), "\n") < 3 {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
	t.Log(report())
	if now, err := os.ReadFile(ibex); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the program of the host was changed from inside a container: %v", err)
	}
}
