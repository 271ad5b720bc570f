package systemd

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/cgroups"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The golden file holds a name, linux.resources, and the properties that follow
// from them, with an empty line between the cases.
func TestPropertiesFollowFromResources(t *testing.T) {
	const file = "testdata/properties.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for c := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		lines := strings.SplitN(c, "\n", 3)
		var res specs.LinuxResources
		if err := json.Unmarshal([]byte(lines[1]), &res); err != nil {
			t.Fatalf("%s: %v", lines[1], err)
		}
		props, err := properties(&res)
		got := "nothing"
		if err != nil {
			got = "error: " + err.Error()
		} else if len(props) > 0 {
			var b strings.Builder
			for _, p := range props {
				fmt.Fprintf(&b, "%s=%s\n", p.Name, p.Value)
			}
			got = strings.TrimSuffix(b.String(), "\n")
		}
		if (len(lines) < 3 || lines[2] != got) && !*update {
			t.Errorf("%s:\n%s", lines[0], got)
		}
		out = append(out, strings.Join([]string{lines[0], lines[1], got}, "\n"))
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAScopeWithoutLimitHasNone(t *testing.T) {
	props, err := startProperties(cgroups.Unit{Slice: "a.slice", Name: "x.scope"}, Options{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range props {
		if p.Name == "TasksMax" && p.Value.Value() == uint64(math.MaxUint64) {
			return
		}
	}
	t.Errorf("no TasksMax in %v", props)
}

func TestAnnotationsSetHarmlessPropertiesOnly(t *testing.T) {
	props, err := annotated(map[string]string{
		"org.systemd.property.TimeoutStopUSec": "uint64 5000000",
		"org.systemd.property.CollectMode":     "'inactive'",
		"something.else":                       "x",
	})
	if err != nil || len(props) != 2 || props[0].Value.Value() != "inactive" || props[1].Value.Value() != uint64(5000000) {
		t.Errorf("annotated = %v, %v", props, err)
	}
	for key, value := range map[string]string{
		"org.systemd.property.ExecStart":       "'/bin/sh'",
		"org.systemd.property.DeviceAllow":     "[('/dev/sda', 'rwm')]",
		"org.systemd.property.Slice":           "'system.slice'",
		"org.systemd.property.TimeoutStopUSec": "'soon'",
	} {
		if _, err := annotated(map[string]string{key: value}); !errors.Is(err, cgroups.ErrInvalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v, want ErrInvalid that names the annotation", key, value, err)
		}
	}
}
