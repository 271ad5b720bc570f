package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	ctrshim "github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestSocketPathIsTheOneThatContainerdComputes(t *testing.T) {
	ctx := namespaces.WithNamespace(context.Background(), "k8s.io")
	for _, address := range []string{"/run/containerd/containerd.sock", "", "/tmp/x/../y.sock"} {
		want, err := ctrshim.CreateSocketAddress(ctx, "/some/dir", address, "group-1", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := "unix://" + socketPath("/some/dir", address, "k8s.io", "group-1"); got != want {
			t.Errorf("socketPath(%q) = %s; want %s", address, got, want)
		}
	}
	want, err := ctrshim.SocketAddress(ctx, "/a.sock", "g", false)
	if err != nil {
		t.Fatal(err)
	}
	if got := "unix://" + socketPath(defaultSocketDir, "/a.sock", "k8s.io", "g"); got != want {
		t.Errorf("default socketPath = %s; want %s", got, want)
	}
}

func params(t testing.TB, p *bootapi.BootstrapParams) []byte {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStartKnowsBothProtocols(t *testing.T) {
	t.Setenv(envTTRPC, "/env.ttrpc")
	f := flags{id: "c1", namespace: "ns", address: "/flag.sock"}
	dir := "/run/x/s"
	theirs := toAny(t, &runtimeoptions.Options{ConfigBody: []byte("IoUid = 1")})
	opts := &anypb.Any{TypeUrl: theirs.TypeURL, Value: theirs.Value}
	legacy, err := proto.Marshal(opts)
	if err != nil {
		t.Fatal(err)
	}
	full := &bootapi.BootstrapParams{
		InstanceID: "c1", Namespace: "ns", ContainerdGrpcAddress: "/p.sock", ContainerdTtrpcAddress: "/p.ttrpc",
		SocketDir: &dir, LogLevel: bootapi.LogLevel_LOG_LEVEL_DEBUG,
	}
	if err := full.AddExtension(opts); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		input []byte
		want  startRequest
		iouid uint32
	}{
		{"parameters", params(t, full), startRequest{address: "/p.sock", ttrpcAddress: "/p.ttrpc", socketDir: dir, debug: true}, 1},
		{"parameters of somebody else", params(t, &bootapi.BootstrapParams{InstanceID: "c2", Namespace: "ns"}), startRequest{address: "/flag.sock", ttrpcAddress: "/env.ttrpc", legacy: true}, 0},
		{"nothing", nil, startRequest{address: "/flag.sock", ttrpcAddress: "/env.ttrpc", legacy: true}, 0},
		{"options", legacy, startRequest{address: "/flag.sock", ttrpcAddress: "/env.ttrpc", legacy: true}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStart(tt.input, f)
			if err != nil {
				t.Fatal(err)
			}
			if tt.iouid != 0 {
				o, err := parseOptions(got.options)
				if err != nil || o.IoUid != tt.iouid {
					t.Errorf("options = %+v, %v; want IoUid %d", o, err, tt.iouid)
				}
			}
			got.options = nil
			tt.want.id, tt.want.namespace = "c1", "ns"
			if got != tt.want {
				t.Errorf("parseStart() = %+v; want %+v", got, tt.want)
			}
		})
	}
}

func TestAnswerIsWhatEachDaemonReads(t *testing.T) {
	var out bytes.Buffer
	if err := answer(&out, startRequest{}, "unix:///a"); err != nil {
		t.Fatal(err)
	}
	var res bootapi.BootstrapResult
	if err := proto.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatal(err)
	}
	if res.Version != 3 || res.Address != "unix:///a" || res.Protocol != "ttrpc" {
		t.Errorf("answer = %v", &res)
	}
	var caps types.MountCapabilities
	if found, err := res.FindExtension(&caps); !found || err != nil {
		t.Errorf("MountCapabilities: %v, %v; want it attached", found, err)
	}

	t.Setenv(envMaxVersion, "2")
	out.Reset()
	if err := answer(&out, startRequest{legacy: true}, "unix:///a"); err != nil {
		t.Fatal(err)
	}
	var js struct {
		Version           int
		Address, Protocol string
	}
	if err := json.Unmarshal(out.Bytes(), &js); err != nil || js.Version != 2 || js.Address != "unix:///a" || js.Protocol != "ttrpc" {
		t.Errorf("legacy answer = %s (%v)", out.Bytes(), err)
	}
	if proto.Unmarshal(out.Bytes(), &res) == nil {
		t.Error("the JSON answer decodes as a BootstrapResult: a new daemon would misread it")
	}

	t.Setenv(envMaxVersion, "")
	out.Reset()
	if err := answer(&out, startRequest{legacy: true}, "unix:///a"); err != nil || out.String() != "unix:///a" {
		t.Errorf("oldest answer = %q, %v; want the bare address", out.String(), err)
	}
}

func TestGroupComesFromTheFirstLabelThatIsThere(t *testing.T) {
	for _, tt := range []struct{ name, spec, want string }{
		{"none", `{"annotations":{"a":"b"}}`, "c1"},
		{"no annotations", `{}`, "c1"},
		{"pod", `{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}`, "pod"},
		{"runc's before pod", `{"annotations":{"io.kubernetes.cri.sandbox-id":"pod","io.containerd.runc.v2.group":"g"}}`, "g"},
		{"own first", `{"annotations":{"io.ibex.group":"own","io.containerd.runc.v2.group":"g"}}`, "own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, []byte(tt.spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := readGroup(path, "c1"); err != nil || got != tt.want {
				t.Errorf("readGroup() = %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestSocketIsPrivateAndClaimedOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	path := filepath.Join(dir, "sock")
	l, err := claimSocket(path)
	if err != nil || l == nil {
		t.Fatalf("first claim = %v, %v", l, err)
	}
	for p, want := range map[string]os.FileMode{dir: os.ModeDir | 0o700, path: os.ModeSocket | 0o600} {
		st, err := os.Stat(p)
		if err != nil || st.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", p, st.Mode(), err, want)
		}
	}
	if again, err := claimSocket(path); err != nil || again != nil {
		t.Errorf("second claim = %v, %v; want none: somebody listens", again, err)
	}
	if err := removeDeadSocket(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a living shim's socket was removed: %v", err)
	}
	l.Close()
	if l, err = claimSocket(path); err != nil || l == nil {
		t.Errorf("claim of a dead socket = %v, %v; want a new one", l, err)
	}
	l.Close()
	if err := removeDeadSocket(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a dead socket is still there: %v", err)
	}
	if _, err := claimSocket(filepath.Join(dir, strings.Repeat("x", 107))); err == nil {
		t.Error("a path that does not fit into a socket address was accepted")
	}
}

func TestLogDriverArgumentsKeepTheirOrder(t *testing.T) {
	got := loggerArgs("b=2&a=1&flag&x=%20y")
	want := []string{"b", "2", "a", "1", "flag", "", "x", " y"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("loggerArgs() = %q; want %q", got, want)
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(params(f, &bootapi.BootstrapParams{InstanceID: "c1", Namespace: "ns"}))
	f.Add([]byte("\n\x05x.y.Z\x12\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseStart(b, flags{id: "c1", namespace: "ns"})
		if err == nil && (r.id != "c1" || r.namespace != "ns") {
			t.Errorf("identity changed: %+v", r)
		}
	})
}
