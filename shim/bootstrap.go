package shim

// This is the one file that starts programs with os/exec: the shim's own
// server, once for a pod, and log drivers that a client asks for. Container
// processes never come this way.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/exeseal"
	"github.com/ibex-run/ibex/internal/ocijson"
	"github.com/ibex-run/ibex/shim/wire"
)

const (
	// maxInput bounds what start reads from standard input.
	maxInput = 10 << 20
	// maxSpec bounds config.json, of which only the annotations are read here.
	maxSpec = 64 << 20
	// addressFile is where daemons before 2.0 look for the address of a shim.
	addressFile = "address"
	// listenerFD is the descriptor on which the server finds its socket.
	listenerFD = 3
)

// groupLabels are the annotations whose value joins containers in one shim. The
// first that is there counts.
var groupLabels = []string{
	"io.ibex.group",
	"io.containerd.runc.v2.group",
	"io.kubernetes.cri.sandbox-id",
}

// startRequest is what containerd wants started, in whichever protocol it said
// so.
type startRequest struct {
	id, namespace string
	address       string // containerd's gRPC address, part of the socket's name
	ttrpcAddress  string // where events go
	socketDir     string
	debug         bool
	options       *wire.Any
	// legacy says that the caller is older than 2.3: options, not parameters, on
	// standard input, and a JSON answer.
	legacy bool
}

// parseStart reads what came on standard input. Options of an old daemon may
// decode as parameters by accident, so their identity must agree with the
// flags.
func parseStart(input []byte, f flags) (startRequest, error) {
	r := startRequest{
		id: f.id, namespace: f.namespace, address: f.address, debug: f.debug,
		ttrpcAddress: os.Getenv(envTTRPC),
	}
	var p wire.Params
	if len(input) > 0 && wire.Unmarshal(input, &p) == nil && p.InstanceID == f.id && p.Namespace == f.namespace {
		r.socketDir = p.SocketDir
		r.debug = r.debug || p.LogLevel <= wire.LogLevelDebug
		if p.GRPCAddress != "" {
			r.address = p.GRPCAddress
		}
		if p.TTRPCAddress != "" {
			r.ttrpcAddress = p.TTRPCAddress
		}
		for _, e := range p.Extensions {
			if a := e.Value; a != nil && isOptions(a) {
				r.options = a
			}
		}
		return r, nil
	}
	r.legacy = true
	if len(input) > 0 {
		r.options = &wire.Any{}
		if err := wire.Unmarshal(input, r.options); err != nil {
			return r, fmt.Errorf("standard input: neither bootstrap parameters nor runtime options: %w", err)
		}
	}
	return r, nil
}

// start finds or makes the shim for a container and says where it listens. It
// runs in the bundle.
func start(f flags, stdin io.Reader, stdout io.Writer) error {
	input, err := io.ReadAll(io.LimitReader(stdin, maxInput+1))
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	if len(input) > maxInput {
		return fmt.Errorf("standard input: more than %d bytes", maxInput)
	}
	r, err := parseStart(input, f)
	if err != nil {
		return err
	}
	group, err := readGroup("config.json", r.id)
	if err != nil {
		return err
	}
	dir := r.socketDir
	if dir == "" {
		dir = defaultSocketDir
	}
	if err := linkSocketDir(dir); err != nil {
		return err
	}
	path := socketPath(dir, r.address, r.namespace, group)
	l, err := claimSocket(path)
	if err != nil {
		return err
	}
	if l != nil {
		err := spawnServer(r, l)
		l.Close() //nolint:errcheck // the server has its own
		if err != nil {
			os.Remove(path) //nolint:errcheck // the error that counts is the spawn's
			return err
		}
	}
	if r.legacy {
		if err := leaveAddress("unix://" + path); err != nil {
			return err
		}
	}
	return answer(stdout, r, "unix://"+path)
}

// leaveAddress leaves the address in the bundle. Daemons before 2.0 forget what
// start answered when they restart, and take a bundle without this file for that
// of a dead shim: they kill its containers. Newer ones have a file of their own.
func leaveAddress(address string) error {
	f, err := os.OpenFile(addressFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(address)
	return errors.Join(err, f.Close())
}

// answer tells containerd the address. Daemons before 2.3 read JSON (1.7 on) or
// a bare address; version 2 is the newest that all of those accept. Both
// versions of the task service are there in any case.
func answer(w io.Writer, r startRequest, address string) error {
	var out []byte
	var err error
	switch {
	case !r.legacy:
		// Without this extension containerd runs the binary once more, with
		// -info, to learn which mounts the shim makes itself.
		out = wire.Marshal(&wire.Result{
			Version: 3, Address: address, Protocol: "ttrpc",
			Extensions: []*wire.Extension{{Value: &wire.Any{TypeURL: "type.googleapis.com/" + wire.MountCapabilitiesName}}},
		})
	case os.Getenv(envMaxVersion) != "":
		out, err = json.Marshal(struct {
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{2, address, "ttrpc"})
	default:
		out = []byte(address)
	}
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_, err = w.Write(out)
	return err
}

// readGroup finds the name of the group of containers that share a shim.
func readGroup(config, id string) (string, error) {
	f, err := os.Open(config)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSpec))
	if err != nil {
		return "", err
	}
	if err := ocijson.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("%s: %w", config, err)
	}
	for _, label := range groupLabels {
		if g := spec.Annotations[label]; g != "" {
			return g, nil
		}
	}
	return id, nil
}

// spawnServer starts this program again as the server of l.
func spawnServer(r startRequest, l *socketFile) error {
	o, err := parseOptions(r.options)
	if err != nil {
		return err
	}
	conf, err := nodeConfig()
	if err != nil {
		return err
	}
	o.fillFrom(conf.Options)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-namespace", r.namespace, "-id", r.id, "-address", r.address}
	if r.debug {
		args = append(args, "-debug")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), envTTRPC+"="+r.ttrpcAddress)
	sealed, err := runSealed(cmd, self, ".", conf.RequireSealed)
	if err != nil {
		return err
	}
	defer sealed.Close()
	cmd.ExtraFiles = []*os.File{l.file} // becomes listenerFD
	// A session of its own: what stops containerd's terminal or process group
	// must not stop containers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := scheduleApart(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the shim's server: %w", err)
	}
	if err := adoptServer(o, cmd.Process.Pid); err != nil {
		cmd.Process.Kill() //nolint:errcheck // it ends with its socket otherwise
		cmd.Wait()         //nolint:errcheck // killed
		return err
	}
	return cmd.Process.Release()
}

// runSealed makes cmd run from a file that nobody can change, or, where that
// cannot be had and is not required, say so in its log.
func runSealed(cmd *exec.Cmd, self, scratch string, require bool) (exeseal.File, error) {
	sealed, err := exeseal.Open(self, scratch)
	switch {
	case err == nil:
		cmd.Path = sealed.Path() // not Args: who looks for shims finds them by name
	case require:
		return sealed, fmt.Errorf("allow_unsealed is false in the node's configuration: %w", err)
	default:
		cmd.Env = append(cmd.Env, envUnsealed+"="+err.Error())
	}
	return sealed, nil
}

// adoptServer puts the server where it belongs: less precious to the OOM killer
// than containerd, more than any container, and in its cgroup.
func adoptServer(o options, pid int) error {
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return fmt.Errorf("read OOM score of containerd: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(score)))
	if err != nil {
		return fmt.Errorf("read OOM score of containerd: %w", err)
	}
	file := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := writeFile(file, strconv.Itoa(min(n+1, 1000))); err != nil {
		return fmt.Errorf("set OOM score of the shim: %w", err)
	}
	if o.ShimCgroup != "" {
		return joinCgroup(o.ShimCgroup, pid)
	}
	return nil
}

// writeFile writes to a file of the kernel's, in one piece.
func writeFile(path, data string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(data)
	return errors.Join(err, f.Close())
}

// linkSocketDir leaves a link to the socket directory in the bundle: delete,
// which gets no parameters, finds the socket by it.
func linkSocketDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("socket_dir %q: not an absolute path", dir)
	}
	err := os.Symlink(dir, socketDirLink)
	if errors.Is(err, os.ErrExist) {
		os.Remove(socketDirLink) //nolint:errcheck // Symlink tells
		err = os.Symlink(dir, socketDirLink)
	}
	return err
}

// startLogProgram starts a log driver. files become its descriptors from 3 on.
func startLogProgram(path string, args, env []string, files []*os.File) (*logProgram, error) {
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Env = env
	cmd.ExtraFiles = files
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &logProgram{signal: cmd.Process.Signal, done: make(chan struct{})}
	go func() {
		// The reaper of orphans may have been faster; the status is lost then.
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}
