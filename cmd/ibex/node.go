package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ibex-run/ibex/container"
)

// tasksDir is where containerd keeps the bundles of tasks, unless it is
// configured otherwise: below it DIR/NAMESPACE/ID.
const tasksDir = "/run/containerd/io.containerd.runtime.v2.task"

// found is a container of the node.
type found struct {
	Namespace string // containerd's; "" for one of the command line
	ID        string
	State     string // where its record is
}

// recordFile is the name of a container's record.
const recordFile = "ibex.json"

// node lists the containers of the command line, and those of all shims. containerd
// is not asked: it may hang, and that is when people look.
func (o *options) node() ([]found, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	all, err := recordsIn(root, "")
	if err != nil {
		return nil, err
	}
	for _, dir := range taskDirs() {
		namespaces, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, ns := range namespaces {
			more, err := recordsIn(filepath.Join(dir, ns.Name()), ns.Name())
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
	}
	return all, nil
}

// recordsIn lists the directories in dir that have a record. What goes away
// meanwhile is left out.
func recordsIn(dir, namespace string) (all []found, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		state := filepath.Join(dir, e.Name())
		if _, err := os.Lstat(filepath.Join(state, recordFile)); err == nil {
			all = append(all, found{namespace, e.Name(), state})
		}
	}
	return all, nil
}

// taskDirs are the directories of bundles: the usual one, and those that running
// shims have open.
func taskDirs() []string {
	dirs := []string{tasksDir}
	for _, s := range shims() {
		known := slices.ContainsFunc(dirs, func(d string) bool {
			_, err := os.Lstat(filepath.Join(d, s.namespace, s.id, recordFile))
			return err == nil
		})
		if known {
			continue
		}
		if dir := s.openBundle(); dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// shimProcess is a running shim, as its command line has it.
type shimProcess struct {
	pid           int
	namespace, id string
}

// shims looks through the processes. One in another mount namespace than ours is
// not a shim that we could follow: the paths that it has open mean something else
// there.
func shims() (all []shimProcess) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A name of a task has 15 bytes at most, proc_pid_comm(5).
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !strings.HasPrefix(string(comm), "containerd-shim") {
			continue
		}
		if mnt, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil || mnt != own {
			continue
		}
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		s := shimProcess{pid: pid, namespace: after(args, "-namespace"), id: after(args, "-id")}
		if s.namespace != "" && s.id != "" {
			all = append(all, s)
		}
	}
	return all
}

func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// openBundle finds the directory of bundles of a shim by one that the shim holds
// open.
func (s shimProcess) openBundle() string {
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	if err != nil {
		return ""
	}
	for _, l := range links {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.pid, l.Name()))
		if err != nil || filepath.Base(filepath.Dir(to)) != s.namespace {
			continue
		}
		if _, err := os.Lstat(filepath.Join(to, recordFile)); err == nil {
			return filepath.Dir(filepath.Dir(to))
		}
	}
	return ""
}

// find finds a container of the node by its ID or the beginning of it.
func (o *options) find(id string) (found, error) {
	if dir, err := o.dir(id); err == nil {
		if _, err := os.Lstat(filepath.Join(dir, recordFile)); err == nil {
			return found{"", id, dir}, nil
		}
	}
	all, err := o.node()
	if err != nil {
		return found{}, err
	}
	var hits []found
	for _, f := range all {
		if f.ID == id {
			hits = append(hits, f)
		}
	}
	if len(hits) == 0 && id != "" {
		for _, f := range all {
			if strings.HasPrefix(f.ID, id) {
				hits = append(hits, f)
			}
		}
	}
	switch len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return found{}, fmt.Errorf("container %q does not exist; ibex ps lists those of the node", id)
	}
	var names []string
	for _, f := range hits {
		names = append(names, f.Namespace+"/"+f.ID)
	}
	return found{}, fmt.Errorf("container %q: there are %d: %s; write more of the ID", id, len(hits), strings.Join(names, ", "))
}

// look looks at a container of the node; nil if it went away meanwhile.
func (f found) look() (*container.View, error) {
	v, err := container.Look(f.State)
	if errors.Is(err, container.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", f.ID, err)
	}
	return v, nil
}

// Annotations by which the CRI plugin says whose container this is
// (internal/cri/annotations of containerd).
const (
	criPod       = "io.kubernetes.cri.sandbox-name"
	criNamespace = "io.kubernetes.cri.sandbox-namespace"
	criContainer = "io.kubernetes.cri.container-name"
	criType      = "io.kubernetes.cri.container-type"
)

// shortID is how much of a long hexadecimal ID people see.
const shortID = 12

// name is what people call the container: of a pod its pod and its own name, else
// its ID.
func name(v *container.View) string {
	pod, own := v.Annotations[criPod], v.Annotations[criContainer]
	if pod == "" {
		return short(v.ID)
	}
	if ns := v.Annotations[criNamespace]; ns != "" {
		pod = ns + "/" + pod
	}
	if v.Annotations[criType] == "sandbox" {
		own = "(pod)"
	}
	return pod + "/" + own
}

func short(id string) string {
	if len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" {
		return id[:shortID]
	}
	return id
}
