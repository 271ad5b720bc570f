package shim

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// defaultSocketDir is containerd's, for daemons that do not name one.
	defaultSocketDir = "/run/containerd/s"
	// socketDirLink is a link in the bundle to the directory in use.
	socketDirLink = "s"
	// maxSocketPath is sun_path of sockaddr_un less the final NUL, and one to
	// spare as containerd has it (unix(7)).
	maxSocketPath = 106
)

// socketPath is where the shim of a group listens. The formula is containerd's:
// others compute the path to find the shim.
func socketPath(dir, address, namespace, group string) string {
	sum := sha256.Sum256([]byte(filepath.Join(address, namespace, group)))
	return filepath.Join(dir, hex.EncodeToString(sum[:]))
}

// socketFile is a listening socket on its way to the server.
type socketFile struct{ file *os.File }

func (s *socketFile) Close() error { return s.file.Close() }

// claimSocket makes the socket of a group, or returns nil if a shim listens
// there already. A socket whose shim is dead is replaced.
//
// Between bind(2) and listen(2) a socket looks dead, and of two starts that find
// a dead one the second would remove what the first has put there. A lock on the
// directory makes looking and taking one step; it goes with the process.
func claimSocket(path string) (*socketFile, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s: longer than %d bytes", path, maxSocketPath)
	}
	unlock, err := lockSocketDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	switch err := dialSocket(path); {
	case err == nil, errors.Is(err, unix.EAGAIN):
		return nil, nil
	case errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	default:
		return nil, err
	}
	return listenAt(path)
}

// listenAt binds with no permission for others from the first moment: the
// directory is root's alone, and the mode is set before listen(2).
func listenAt(path string) (*socketFile, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	err = os.Chmod(path, 0o600)
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		f.Close()
		os.Remove(path) //nolint:errcheck // the first error counts
		return nil, err
	}
	return &socketFile{f}, nil
}

// lockSocketDir makes the directory if need be, 0700, and locks it.
func lockSocketDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:forbidigo // containerd names the directory
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	for {
		err := unix.Flock(fd, unix.LOCK_EX)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			unix.Close(fd)
			return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
		}
		return func() { unix.Close(fd) }, nil
	}
}

// dialSocket tells whether somebody listens at path: nil, or EAGAIN if so many
// are waiting to be accepted that no more fit. Neither waits for anybody.
func dialSocket(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "connect", Path: path, Err: err}
		}
		return nil
	}
}

// removeDeadSocket removes the socket of a shim that does not live any more.
func removeDeadSocket(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lockSocketDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	if err := dialSocket(path); errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(path)
	}
	return nil
}

// inheritListener takes over the socket that start has made. It is not removed
// by Close: whoever shuts down must do that, under the lock.
func inheritListener(f *os.File) (*net.UnixListener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("%s: not a listening socket: %w", f.Name(), err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("%s: not a Unix socket", f.Name())
	}
	return u, nil
}

// errPeer refuses a connection.
var errPeer = errors.New("connection refused: peer is not root in the shim's own namespaces")

var errPeerEnded = errors.New("peer has ended")

// checkPeer lets only root of the shim's own user and PID namespace in: the
// socket's permissions do not stop a container's root that can reach the path.
//
// SO_PEERCRED is what held at connect(2) (unix(7)). The PID may have been
// reused since; what could be reached that way is root on the host already.
func checkPeer(cred *unix.Ucred) error {
	if cred.Uid != 0 || cred.Pid <= 0 {
		return errPeer
	}
	for _, ns := range []string{"user", "pid"} {
		var own, peer syscall.Stat_t
		if err := syscall.Stat("/proc/self/ns/"+ns, &own); err != nil {
			return fmt.Errorf("look at own %s namespace: %w", ns, err)
		}
		if err := syscall.Stat(fmt.Sprintf("/proc/%d/ns/%s", cred.Pid, ns), &peer); errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			return errPeerEnded
		} else if err != nil {
			return fmt.Errorf("look at peer's %s namespace: %w", ns, err)
		}
		if own.Ino != peer.Ino || own.Dev != peer.Dev {
			return errPeer
		}
	}
	return nil
}
