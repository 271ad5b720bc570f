package container

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ocijson"
	"github.com/ibex-run/ibex/pathsafe"
)

// specMax bounds config.json. 500 mounts and a megabyte of environment stay
// far below it.
const specMax = 16 << 20

// loadSpec reads config.json from the bundle, whose directory must be root's
// and nobody else's to write.
func loadSpec(bundle *pathsafe.Dir) (*specs.Spec, error) {
	data, err := bundle.ReadFile(specName, specMax)
	if err != nil {
		return nil, fmt.Errorf("read config.json: %w", err)
	}
	var s specs.Spec
	if err := ocijson.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("parse config.json: %w: %w", err, ErrInvalid)
	}
	return &s, validate(&s)
}

// checkID refuses what is not fit to be a file's name.
func checkID(id string) error {
	if len(id) == 0 || len(id) > 128 {
		return invalid("id", "%d characters long, want 1 to 128", len(id))
	}
	for i, c := range []byte(id) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return invalid("id", "%q: want letters, digits, and then also '_', '.', '-'", id)
		}
	}
	return nil
}

// rootPath is root.path, made absolute.
func rootPath(s *specs.Spec, bundle string) string {
	if filepath.IsAbs(s.Root.Path) {
		return filepath.Clean(s.Root.Path)
	}
	return filepath.Join(bundle, s.Root.Path)
}

// nsFlags are the namespaces by OCI name.
var nsFlags = map[specs.LinuxNamespaceType]struct {
	flag int
	file string
}{
	specs.PIDNamespace:     {unix.CLONE_NEWPID, "pid"},
	specs.NetworkNamespace: {unix.CLONE_NEWNET, "net"},
	specs.MountNamespace:   {unix.CLONE_NEWNS, "mnt"},
	specs.IPCNamespace:     {unix.CLONE_NEWIPC, "ipc"},
	specs.UTSNamespace:     {unix.CLONE_NEWUTS, "uts"},
	specs.UserNamespace:    {unix.CLONE_NEWUSER, "user"},
	specs.CgroupNamespace:  {unix.CLONE_NEWCGROUP, "cgroup"},
	specs.TimeNamespace:    {unix.CLONE_NEWTIME, "time"},
}

// namespace returns the spec's entry of a type.
func namespace(s *specs.Spec, t specs.LinuxNamespaceType) (ns specs.LinuxNamespace, ok bool) {
	for _, n := range s.Linux.Namespaces {
		if n.Type == t {
			return n, true
		}
	}
	return ns, false
}

// private reports whether the container has a namespace of its own kind t, new
// or joined, rather than the caller's.
func private(s *specs.Spec, t specs.LinuxNamespaceType) bool {
	_, ok := namespace(s, t)
	return ok
}

// isNew reports whether a new namespace of kind t is made.
func isNew(s *specs.Spec, t specs.LinuxNamespaceType) bool {
	n, ok := namespace(s, t)
	return ok && n.Path == ""
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
