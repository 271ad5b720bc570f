package main

import (
	"bytes"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTableIsWhatGenWrites(t *testing.T) {
	dir, err := osexec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Skipf("the go command cannot find golang.org/x/sys here: %v", err)
	}
	out := filepath.Join(t.TempDir(), "table.go")
	if err := run(filepath.Join(strings.TrimSpace(string(dir)), "unix"), out); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../table.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("table.go is not what gen makes of the version in go.mod: run go generate")
	}
}

func TestParseRefusesWhatIsNoTable(t *testing.T) {
	for _, text := range []string{"", "SYS_READ = x", "SYS_READ = 5000", "const (\n\tSYS_READ = 0\n)"} {
		if table, err := parse(text, 0); err == nil {
			t.Errorf("parse(%q) = %v; want an error", text, table)
		}
	}
}
