package shim

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAShimThatCannotBeSealedSaysSoOrDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	if _, err := runSealed(exec.Command(gone), gone, dir, true); err == nil || !strings.Contains(err.Error(), "allow_unsealed") {
		t.Errorf("required: %v", err)
	}
	cmd := exec.Command(gone)
	s, err := runSealed(cmd, gone, dir, false)
	if err != nil || cmd.Path != gone || len(cmd.Env) != 1 || !strings.HasPrefix(cmd.Env[0], envUnsealed+"=make a") {
		t.Errorf("allowed: %+v %q %q %v", s, cmd.Path, cmd.Env, err)
	}
}
