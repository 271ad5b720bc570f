package shim

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

// deleteTimeout is for the whole of delete: containerd gives it five seconds.
const deleteTimeout = 4500 * time.Millisecond

// deleteDead cleans up after a container whose shim does not live any more, from
// the record on disk, and reports how it ended. It succeeds when there is
// nothing to do.
func deleteDead(f flags, stdout, stderr io.Writer) error {
	bundle := f.bundle
	if bundle == "" {
		cwd, err := os.Getwd() //nolint:forbidigo // containerd runs delete in the bundle; -bundle says so when it does not
		if err != nil {
			return err
		}
		// The working directory is that of the bundle, or of one beside it.
		bundle = filepath.Join(filepath.Dir(cwd), f.id)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	pid, st, err := container.Cleanup(ctx, bundle, bundle, f.id)
	if err != nil {
		return fmt.Errorf("clean up container %s: %w", f.id, err)
	}
	if err := deleteSocket(f, bundle); err != nil {
		fmt.Fprintf(stderr, "remove socket: %v\n", err) // containerd logs it as a warning
	}
	_, err = stdout.Write(wire.Marshal(&wire.DeleteResponse{
		Pid: uint32(pid), ExitStatus: st.Code, ExitedAt: wire.NewTimestamp(st.At),
	}))
	return err
}

// deleteSocket removes the socket that the dead shim has left, unless the shim
// lives and serves others of the group.
func deleteSocket(f flags, bundle string) error {
	dir, err := os.Readlink(filepath.Join(bundle, socketDirLink))
	if err != nil {
		dir = defaultSocketDir
	}
	group, err := readGroup(filepath.Join(bundle, "config.json"), f.id)
	if err != nil {
		group = f.id
	}
	return removeDeadSocket(socketPath(dir, f.address, f.namespace, group))
}
