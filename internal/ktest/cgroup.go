package ktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupMount is a mounted cgroup hierarchy.
type CgroupMount struct {
	Dir         string   // the mount point
	V2          bool     // the unified hierarchy
	Controllers []string // of a v1 hierarchy; "name=..." for one without
}

// Has tells whether the v1 hierarchy carries the controller.
func (m CgroupMount) Has(controller string) bool {
	return slices.Contains(m.Controllers, controller)
}

// CgroupMounts lists the cgroup hierarchies mounted here.
func CgroupMounts() []CgroupMount {
	var ms []CgroupMount
	for _, m := range Mounts() {
		switch m.Type {
		case "cgroup2":
			ms = append(ms, CgroupMount{Dir: m.Point, V2: true})
		case "cgroup":
			ms = append(ms, CgroupMount{Dir: m.Point, Controllers: strings.Split(m.SuperOptions, ",")})
		}
	}
	return ms
}

// CgroupDirs lists the directories of one cgroup in all hierarchies that have
// it. path is as in /proc/PID/cgroup.
func CgroupDirs(path string) []string {
	var dirs []string
	for _, m := range CgroupMounts() {
		d := filepath.Join(m.Dir, path)
		if _, err := os.Stat(d); err == nil {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// CgroupDir returns the directory in which the controller's files of a process
// are: of the v1 hierarchy of that controller, else of the unified one.
func CgroupDir(pid int, controller string) (string, error) {
	paths, err := CgroupPaths(pid)
	if err != nil {
		return "", err
	}
	v2 := ""
	for _, m := range CgroupMounts() {
		if m.Has(controller) {
			return filepath.Join(m.Dir, paths[controller]), nil
		}
		if m.V2 {
			v2 = filepath.Join(m.Dir, paths[""])
		}
	}
	if v2 == "" {
		return "", fmt.Errorf("no hierarchy has the %s controller", controller)
	}
	return v2, nil
}

// CgroupPaths returns the cgroups of a process by controller; "" is the unified
// hierarchy.
func CgroupPaths(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("read /proc/%d/cgroup: unexpected line %q", pid, line)
		}
		for _, c := range strings.Split(f[1], ",") {
			paths[c] = f[2]
		}
	}
	return paths, nil
}

// InCgroup lists the processes in a cgroup or below it, in any hierarchy.
// Zombies count only where the kernel still names the cgroup for them.
func InCgroup(path string) []Proc {
	var in []Proc
	for _, p := range Procs() {
		paths, err := CgroupPaths(p.PID)
		if err != nil {
			continue
		}
		for _, c := range paths {
			c = strings.TrimSuffix(c, " (deleted)")
			if c == path || strings.HasPrefix(c, path+"/") {
				in = append(in, p)
				break
			}
		}
	}
	return in
}

// RemoveCgroup kills what runs in a cgroup of that path and removes it with all
// below it, in every hierarchy. It is for cleaning up after tests; path must
// name a cgroup of tests.
func RemoveCgroup(path string) error {
	base := strings.SplitN(strings.Trim(path, "/"), "/", 2)[0]
	if !strings.HasPrefix(base, "ibex-") {
		return fmt.Errorf("remove cgroup %s: not one of ours", path)
	}
	for _, d := range CgroupDirs(path) {
		// A frozen v1 cgroup keeps even a SIGKILL waiting.
		_ = filepath.WalkDir(d, func(p string, e os.DirEntry, _ error) error {
			if e != nil && e.Name() == "freezer.state" {
				_ = os.WriteFile(p, []byte("THAWED"), 0)
			}
			return nil
		})
	}
	return Poll(10*time.Second, func() error {
		for _, p := range InCgroup(path) {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
		var last error
		for _, d := range CgroupDirs(path) {
			last = removeTree(d, last)
		}
		return last
	})
}

// removeTree removes the directories of a cgroup, deepest first.
func removeTree(dir string, last error) error {
	var dirs []string
	_ = filepath.WalkDir(dir, func(p string, e os.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
			last = fmt.Errorf("rmdir %s: %w", d, err)
		}
	}
	return last
}

// ReadUint reads a file that holds one number. "max" is the largest uint64.
func ReadUint(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	s := strings.TrimSpace(string(text))
	if s == "max" {
		return ^uint64(0), nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// ReadKey reads one value of a file of "key value" lines, such as memory.stat.
func ReadKey(path, key string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			return strconv.ParseUint(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("read %s: no key %q", path, key)
}
