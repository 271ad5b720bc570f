package integration

import (
	"strings"
	"sync"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// stalled is a reader of output that takes nothing before it is released.
type stalled struct {
	gate chan struct{}
	mu   sync.Mutex
	got  []byte
}

func (s *stalled) Write(b []byte) (int, error) {
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, b...)
	return len(b), nil
}

// containerd/containerd#9342, containerd/containerd#11511
func TestAContainerDoesNotWaitForItsLogWhereTheSpecSaysSo(t *testing.T) {
	t.Parallel()
	notIncumbent(t, "its containers wait")
	const size = 4 << 20
	for name, s := range map[string]boxSpec{
		"annotation": {spec: []oci.SpecOpts{oci.WithAnnotations(map[string]string{"io.ibex.log-overflow": "drop", "io.ibex.log-spool": "65536"})}},
		"option":     {opts: []containerd.NewContainerOpts{runtimeOptions("LogOverflow = 'drop'", "LogSpool = 65536")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink := &stalled{gate: make(chan struct{})}
			open := sync.OnceFunc(func() { close(sink.gate) })
			t.Cleanup(open)
			s.stdout = sink
			s.args = []string{"sh", "-c", "head -c 4194304 /dev/zero; echo written >&2"}
			b := startBox(t, s)
			b.err.waitFor(t, "written\n")
			if code := b.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			open()
			b.delete()
			sink.mu.Lock()
			defer sink.mu.Unlock()
			if n := len(sink.got); n < 65536 || n > size/2 || !strings.HasSuffix(string(sink.got), "nobody read in time]\n") {
				t.Errorf("%d bytes, the end %q", n, sink.got[max(0, n-100):])
			}
		})
	}
}
