package cgroup1

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A golden file holds cases like
//
//	name
//	{"Memory": 31457280, ...}         the state before
//	{"memory": {"limit": 62914560}}   linux.resources
//	memory.memsw.limit_in_bytes <- 83886080
//	...                               the writes, or the error
//
// with an empty line between them. They are read, and with -update the lines
// after the third of each are written anew.
func TestWriteLists(t *testing.T) {
	files, err := filepath.Glob("testdata/writes/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for c := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				lines := strings.SplitN(c, "\n", 4)
				if len(lines) < 3 {
					t.Fatalf("case %q has less than three lines", c)
				}
				got := compile(t, lines[1], lines[2])
				if len(lines) < 4 || lines[3] != got {
					if !*update {
						t.Errorf("%s:\n%s\nwant\n%s", lines[0], got, strings.Join(lines[min(3, len(lines)):], ""))
					}
				}
				out = append(out, strings.Join(append(lines[:3:3], got), "\n"))
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func compile(t *testing.T, state, resources string) string {
	t.Helper()
	var cur current
	var res specs.LinuxResources
	strict(t, state, &cur)
	strict(t, resources, &res)
	list, err := writes(&res, cur)
	if err != nil {
		return "error: " + err.Error()
	}
	if len(list) == 0 {
		return "nothing"
	}
	lines := make([]string, 0, len(list))
	for _, w := range list {
		lines = append(lines, w.String())
	}
	return strings.Join(lines, "\n")
}

func strict(t *testing.T, text string, to any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
