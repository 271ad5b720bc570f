package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ibex-run/ibex/shim/wire"
)

func toAny(t *testing.T, m proto.Message) *wire.Any {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.Any{TypeURL: string(m.ProtoReflect().Descriptor().FullName()), Value: b}
}

func TestOptionsMeanTheSameInEveryForm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	body := "NoNewKeyring = true\nIoUid = 7\nIoGid = 8\nShimCgroup = '/x'\nSystemdCgroup = true\n"
	if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	want := options{NoNewKeyring: true, IoUid: 7, IoGid: 8, ShimCgroup: "/x", SystemdCgroup: true}
	prefixed := toAny(t, &runtimeoptions.Options{ConfigBody: []byte(body)})
	prefixed.TypeURL = "type.googleapis.com/" + prefixed.TypeURL
	for _, tt := range []struct {
		name string
		in   *wire.Any
		want options
	}{
		{"nothing", nil, options{}},
		{"an empty Any", &wire.Any{}, options{}},
		{"an empty body", toAny(t, &runtimeoptions.Options{}), options{}},
		{"TOML", toAny(t, &runtimeoptions.Options{ConfigBody: []byte(body)}), want},
		{"TOML, with a prefixed type", prefixed, want},
		{"a TOML file", toAny(t, &runtimeoptions.Options{ConfigPath: file}), want},
		{"a body goes before a file", toAny(t, &runtimeoptions.Options{ConfigBody: []byte("IoUid = 1"), ConfigPath: file}), options{IoUid: 1}},
		{"runc's", toAny(t, &runcoptions.Options{NoNewKeyring: true, IoUid: 7, IoGid: 8, ShimCgroup: "/x", SystemdCgroup: true}), want},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseOptions(tt.in)
			if err != nil || got != tt.want {
				t.Errorf("parseOptions() = %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestBadOptionsNameWhatIsBad(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   *wire.Any
		text string
	}{
		{"an unknown key", toAny(t, &runtimeoptions.Options{ConfigBody: []byte("IoUid = 1\nNoSuchKey = 2")}), "unknown key NoSuchKey"},
		{"an unknown table", toAny(t, &runtimeoptions.Options{ConfigBody: []byte("[extra]\nkey = 1")}), "unknown key extra"},
		{"a wrong type", toAny(t, &runtimeoptions.Options{ConfigBody: []byte("IoUid = 'x'")}), "IoUid"},
		{"no pivot_root", toAny(t, &runcoptions.Options{NoPivotRoot: true}), "NoPivotRoot"},
		{"an unknown message", &wire.Any{TypeURL: "a.b.C", Value: []byte{1}}, "a.b.C"},
		{"garbage", &wire.Any{TypeURL: "containerd.runc.v1.Options", Value: []byte{0xff}}, "decode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseOptions(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.text) || !errors.Is(err, errInvalid) {
				t.Errorf("parseOptions() error = %v; want one that names %s", err, tt.text)
			}
		})
	}
}
