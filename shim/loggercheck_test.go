package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A log driver runs as root on the host. That a name out of an image's labels was
// taken for one (CVE-2026-53488) is containerd's affair; that only root's own
// programs are run is ours.
func TestALogDriverThatIsNotRootsAloneIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	script := func(name string, mode os.FileMode, uid int) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755), os.Chmod(path, mode), os.Chown(path, uid, 0)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := script("good", 0o755, 0)
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"another's":          "binary://" + script("theirs", 0o755, 1000),
		"others may write":   "binary://" + script("open", 0o757, 0),
		"a group may write":  "binary://" + script("group", 0o775, 0),
		"a directory":        "binary://" + dir,
		"..":                 "binary://" + dir + "/d/../good",
		"encoded ..":         "binary://" + dir + "/d/%2e%2e/good",
		"relative":           "binary:good",
		"a host in front":    "binary://good",
		"a host and a path":  "binary://x" + good,
		"nothing":            "binary://",
		"two slashes inside": "binary://" + dir + "//good",
	} {
		t.Run(name, func(t *testing.T) {
			p := &processIO{spec: ioSpec{stdout: url}}
			if err := p.openBinary(ioOwner{}, logID{}); err == nil || !errors.Is(err, errInvalid) {
				t.Errorf("%s: %v", url, err)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Fatal("it ran")
			}
		})
	}
}
