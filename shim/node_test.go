package shim

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"

	"github.com/ibex-run/ibex/internal/nodeconf"
)

func TestTheNodeGivesWhatTheCallerLeavesOut(t *testing.T) {
	node := nodeconf.Options{
		NoNewKeyring: true, ShimCgroup: "/node", IoUid: 1, IoGid: 2,
		ExecTreeKill: true, LogOverflow: "drop", LogSpool: 3,
	}
	all := options{
		NoNewKeyring: true, ShimCgroup: "/node", IoUid: 1, IoGid: 2,
		ExecTreeKill: true, LogOverflow: "drop", LogSpool: 3,
	}
	own := options{ShimCgroup: "/own", IoUid: 5, IoGid: 6, LogOverflow: "block", LogSpool: 7}
	mixed := own
	mixed.NoNewKeyring, mixed.ExecTreeKill = true, true
	for _, tt := range []struct {
		name       string
		node       nodeconf.Options
		have, want options
	}{
		{"nothing given", node, options{}, all},
		{"all given", node, own, mixed},
		{"a node without a file", nodeconf.Options{}, own, own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.have.fillFrom(tt.node); tt.have != tt.want {
				t.Errorf("options %+v, want %+v", tt.have, tt.want)
			}
		})
	}
}

func TestEveryOptionIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	names := append([]string{overflowAnnotation, spoolAnnotation, "io.ibex.exec-tree-kill", "allow_unsealed", "controlled_userns_caps"}, groupLabels...)
	for _, typ := range []reflect.Type{reflect.TypeFor[options](), reflect.TypeFor[nodeconf.Options]()} {
		for i := range typ.NumField() {
			names = append(names, typ.Field(i).Name)
		}
	}
	for _, n := range names {
		if !strings.Contains(string(text), "`"+n+"`") {
			t.Errorf("docs/configuration.md does not say what %s is", n)
		}
	}
}

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	for name, o := range map[string]options{
		"BinaryName": {BinaryName: "runc"}, "Root": {Root: "/r"}, "SystemdCgroup": {SystemdCgroup: true},
		"CriuPath": {CriuPath: "/c"}, "CriuImagePath": {CriuImagePath: "/i"}, "CriuWorkPath": {CriuWorkPath: "/w"},
		"TaskApiAddress": {TaskApiAddress: "a"}, "TaskApiVersion": {TaskApiVersion: 3},
	} {
		if got := o.ignored(); len(got) != 1 || got[0] != name {
			t.Errorf("%s: ignored() = %q", name, got)
		}
	}
}

func TestOurOwnOptionsAreTakenAndChecked(t *testing.T) {
	parse := func(body string) (options, error) {
		return parseOptions(toAny(t, &runtimeoptions.Options{ConfigBody: []byte(body)}))
	}
	want := options{ExecTreeKill: true, LogOverflow: "drop", LogSpool: 4096}
	if o, err := parse("ExecTreeKill = true\nLogOverflow = 'drop'\nLogSpool = 4096\n"); err != nil || o != want {
		t.Errorf("options %+v, %v", o, err)
	}
	for _, body := range []string{"LogOverflow = 'lose'", "LogSpool = -1", "LogSpool = 99999999999"} {
		name, _, _ := strings.Cut(body, " ")
		if _, err := parse(body); !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
