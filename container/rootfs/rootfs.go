// Package rootfs builds a container's mount tree from descriptors. What can be
// made in advance is made detached, in the caller, where errors have names;
// what belongs to the container's namespaces is made by the container's first
// process, as steps of its plan. Nothing is ever mounted in the caller's mount
// namespace, so nothing is left there whatever happens.
package rootfs

import (
	"fmt"
	"path"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec/plan"
	"github.com/ibex-run/ibex/pathsafe"
)

// Config says what the container's file system looks like.
type Config struct {
	Bundle string // absolute; relative bind sources are below it
	// Path is where the root is attached in the container's mount namespace
	// until pivot_root: an existing directory of the host.
	Path string
	// Layers are mounted to become the root; none means Path as it stands.
	Layers        []Layer
	Readonly      bool
	Mounts        []specs.Mount
	Devices       []specs.LinuxDevice
	Masked        []string
	ReadonlyPaths []string
	// Propagation is linux.rootfsPropagation.
	Propagation string
	// Cwd is made where it is missing, as users of OCI runtimes expect.
	Cwd string
	// Terminal asks for a pty and /dev/console.
	Terminal bool
	// IDs are the mappings of the container's user namespace. NewUserNS makes one
	// for a mount's own mappings.
	IDs       IDs
	NewUserNS func(uid, gid []specs.LinuxIDMapping) (int, error)
	// HostNetwork is a user namespace without a network namespace: sysfs is the
	// host's then, and cannot be mounted anew.
	HostNetwork bool
}

// Place is where the container will be: what is known once its namespaces are
// opened and its cgroup is made.
type Place struct {
	// PIDNamespace is the descriptor of a joined PID namespace, -1 for a new one
	// or the host's. UserNS is that of the user namespace, -1 for none.
	PIDNamespace, UserNS int
	Cgroup               Cgroup
}

// Layer is one mount that makes up the root, as snapshotters describe it.
type Layer struct {
	Type, Source, Target string
	Options              []string
}

// Cgroup says what a mount of type cgroup shows.
type Cgroup struct {
	// V2 is a host with the unified hierarchy only.
	V2 bool
	// Private is a cgroup namespace of its own.
	Private bool
	Dirs    []CgroupDir
}

// CgroupDir is the container's directory in one hierarchy. FD is borrowed.
type CgroupDir struct {
	Name  string
	Links []string
	FD    int
}

// Rootfs is a prepared mount tree: descriptors, and the steps that put them
// together.
type Rootfs struct {
	cfg    Config
	at     Place
	owned  []int // closed by Close
	layers []layer
	root   int // the detached root, -1 where only mount(2) can make it
	dir    *pathsafe.Dir
	mounts []mount
	devpts int
	pty    *PTY
	inside bool
	userns map[string]int // made for mounts, by their mappings
	hasDev bool           // the spec mounts something on /dev
	tmpDev bool           // ... and it is a tmpfs, populated in advance
}

// Open makes the root itself, which can be read then. On an error nothing is
// left open.
func Open(cfg Config) (*Rootfs, error) {
	r := &Rootfs{cfg: cfg, root: -1, devpts: -1}
	if err := r.prepareRoot(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Prepare opens and makes everything else that can be made in advance.
func (r *Rootfs) Prepare(at Place) (err error) {
	r.at = at
	for i := range r.cfg.Mounts {
		if err := r.prepareMount(i); err != nil {
			return fmt.Errorf("mounts[%d] (%s): %w", i, r.cfg.Mounts[i].Destination, err)
		}
	}
	if r.cfg.IDs.Mapped() {
		if err := r.refuseNodes(); err != nil {
			return err
		}
	}
	if r.cfg.Terminal {
		r.pty, err = OpenPTY(r.devpts)
	}
	return err
}

// own remembers a descriptor for Close and for the child.
func (r *Rootfs) own(fd int) int {
	r.owned = append(r.owned, fd)
	return fd
}

// Dir is the root directory before any mount of the spec, or nil where the root
// is made by the child.
func (r *Rootfs) Dir() *pathsafe.Dir { return r.dir }

// FDs are the descriptors that the steps use.
func (r *Rootfs) FDs() []int {
	fds := append([]int(nil), r.owned...)
	for _, d := range r.at.Cgroup.Dirs {
		fds = append(fds, d.FD)
	}
	return fds
}

// Inside reports whether the steps have to run inside a joined PID namespace,
// because this kernel cannot make its procfs from outside.
func (r *Rootfs) Inside() bool { return r.inside }

// PTY is the terminal, nil without one. The caller owns it.
func (r *Rootfs) PTY() *PTY { return r.pty }

// Close releases the descriptors. The container keeps its mounts.
func (r *Rootfs) Close() {
	for _, fd := range r.owned {
		unix.Close(fd)
	}
	for _, fd := range r.userns {
		unix.Close(fd)
	}
	r.owned, r.userns = nil, nil
	if r.dir != nil {
		r.dir.Close()
		r.dir = nil
	}
}

// Steps adds the steps that put the tree together and enter it. They run in the
// container's own mount namespace with its other namespaces joined. mounted, if
// not nil, is called where everything is mounted and the old root still there.
func (r *Rootfs) Steps(b *plan.Builder, mounted func()) {
	s := &steps{b: b, r: r}
	defer b.About("")
	b.About("root")
	s.isolate()
	s.attachRoot()
	s.maskSources()
	for i := range r.mounts {
		b.About(fmt.Sprintf("mounts[%d] (%s)", i, r.mounts[i].dest))
		s.mount(&r.mounts[i])
	}
	s.reopenTerminal()
	b.About("linux.devices")
	if !r.hasDev {
		s.devicesInRoot()
	} else {
		s.otherDevices()
	}
	if r.pty != nil && r.tmpDev && r.devpts >= 0 {
		s.console()
	}
	if mounted != nil {
		b.About("hooks")
		mounted()
	}
	s.sealMounts()
	for i, p := range r.cfg.Masked {
		if slices.Contains(r.cfg.Masked[:i], p) {
			continue
		}
		b.About(fmt.Sprintf("linux.maskedPaths[%d] (%s)", i, p))
		s.mask(p)
	}
	for i, p := range r.cfg.ReadonlyPaths {
		if slices.Contains(r.cfg.ReadonlyPaths[:i], p) {
			continue
		}
		b.About(fmt.Sprintf("linux.readonlyPaths[%d] (%s)", i, p))
		s.readonly(p)
	}
	b.About("process.cwd")
	if r.cfg.Cwd != "" && path.Clean(r.cfg.Cwd) != "/" {
		s.directory(r.cfg.Cwd)
	}
	b.About("root")
	s.pivot()
}
