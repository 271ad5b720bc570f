package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// leaks are paths that led out of a container whose runtime had left a directory
// of the host open: a working directory or a program below /proc/self/fd/N was
// then one of the host (CVE-2024-21626, "Leaky Vessels"; podman's working
// directory through a link, CVE-2026-55686).
func leaks() []string {
	paths := []string{"/proc/1/cwd", "/proc/1/root", "/proc/self/cwd", "/proc/self/cwd/../..", "/proc/self/root", "/proc/thread-self/root", "/dev/fd/7", "/w/x", "/u/x"}
	for n := range 24 {
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d", n))
	}
	return paths
}

func TestADescriptorOfTheHostIsNeverTheWorkingDirectory(t *testing.T) {
	decoy(t)
	for _, p := range leaks() {
		b := newBox(t, "/bin/true")
		must(t, os.Symlink("/proc/1/root", filepath.Join(b.root, "w")))
		must(t, os.Symlink("/proc/self/fd/9", filepath.Join(b.root, "u")))
		b.spec.Process.Cwd = p
		if _, code, err := b.run(); err == nil {
			t.Errorf("created with %s: exit code %d", p, code)
		}
		b.nothingLeft()
	}
	b := newBox(t, "/bin/sleep", "1000")
	must(t, os.Symlink("/proc/1/root", filepath.Join(b.root, "w")))
	must(t, os.Symlink("/proc/self/fd/9", filepath.Join(b.root, "u")))
	c := b.start()
	for _, p := range leaks() {
		if _, code, err := b.exec(c, func(s *specs.Process) { s.Cwd = p }, "/bin/true"); err == nil {
			t.Errorf("exec with %s: exit code %d", p, code)
		}
	}
}

func TestADescriptorOfTheHostIsNeverTheProgram(t *testing.T) {
	b := newBox(t, "/bin/sleep", "1000")
	c := b.start()
	for _, p := range leaks() {
		for _, program := range []string{p, p + "/bin/sh", p + "/usr/bin/true"} {
			if strings.HasPrefix(p, "/w") || strings.HasPrefix(p, "/u") {
				continue
			}
			if _, code, err := b.exec(c, nil, program); err == nil {
				t.Errorf("exec of %s: exit code %d", program, code)
			}
			b2 := newBox(t, program)
			if _, code, err := b2.run(); err == nil {
				t.Errorf("create with %s: exit code %d", program, code)
			}
		}
	}
}

// What the process of a container finds open is its standard input, output and
// error, and nothing else: neither the first process nor an exec.
func TestAProcessStartsWithThreeDescriptors(t *testing.T) {
	// One that is not close-on-exec, as a careless library would leave it.
	f, err := os.Open("/")
	must(t, err)
	defer f.Close()
	leaked, err := dupInheritable(f)
	must(t, err)
	defer leaked()
	b := newBox(t, "/bin/ls", "/proc/self/fd")
	out, _, err := b.run()
	must(t, err)
	const want = "0\n1\n2\n3\n" // 3 is the directory that ls reads
	if out != want {
		t.Errorf("the first process has %q", out)
	}
	b = newBox(t, "/bin/sleep", "1000")
	c := b.start()
	if out, _, err := b.exec(c, nil, "/bin/ls", "/proc/self/fd"); err != nil || out != want {
		t.Errorf("an exec has %q, %v", out, err)
	}
}
