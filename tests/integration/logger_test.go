package integration

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/ibex-run/ibex/internal/ktest"
)

// logTo makes a creator that hands the output to the test's logger.
func logTo(t *testing.T, scheme, dir string, tty bool) cio.Creator {
	t.Helper()
	u := &url.URL{Scheme: scheme, Path: filepath.Join(scratch.Dir, "logger"), RawQuery: url.Values{"dir": {dir}, "slow": {"1"}}.Encode()}
	if tty {
		return cio.TerminalLogURI(u)
	}
	return cio.LogURI(u)
}

// containerd/containerd#12490: the last lines were cut off.
func TestABinaryLoggerGetsEverything(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"binary", "binary-v2"} {
		for _, tty := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, terminal %v", scheme, tty), func(t *testing.T) {
				t.Parallel()
				if tty && incumbent() {
					t.Skip("runc.v2 keeps the logger's pipes of a terminal open")
				}
				dir := hostDir(t, "")
				b := newBox(t, boxSpec{tty: tty, args: []string{"sh", "-c", "probe lines 40000; echo end >&2"}})
				b.creator = logTo(t, scheme, dir, tty)
				b.start()
				if code := b.wait(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				b.delete()
				ktest.Eventually(t, prompt, "the logger to end", func() error {
					_, err := os.Stat(filepath.Join(dir, "end"))
					return err
				})
				out, errOut := lines(40000), "end\n"
				if tty {
					out, errOut = strings.ReplaceAll(out+"end\n", "\n", "\r\n"), ""
				}
				wantSame(t, readFile(filepath.Join(dir, "stdout")), out)
				wantSame(t, readFile(filepath.Join(dir, "stderr")), errOut)
				want(t, "names", readFile(filepath.Join(dir, "names")), b.d.Namespace+"/"+b.id)
			})
		}
	}
}

// containerd/containerd#12490
func TestALoggerThatCannotStart(t *testing.T) {
	t.Parallel()
	b := newBox(t, boxSpec{args: []string{"sh", "-c", "echo out; exit 3"}})
	b.creator = cio.LogURI(&url.URL{Scheme: "binary-v2", Path: "/bin/false"})
	if err := b.tryCreate(); err == nil {
		t.Error("binary-v2 with a logger that fails was accepted")
	}
	b.checkResidue()
	b.creator = cio.LogURI(&url.URL{Scheme: "binary-v2", Path: "/no/such/logger"})
	wantError(t, b.tryCreate(), nil, "/no/such/logger")
	b.checkResidue()
}
