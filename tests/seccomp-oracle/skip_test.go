//go:build !cgo || !seccomp

package oracle

import "testing"

func TestAgainstLibseccomp(t *testing.T) {
	t.Skip("built without cgo or without -tags seccomp: libseccomp cannot be linked")
}
