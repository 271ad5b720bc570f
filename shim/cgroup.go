package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// joinCgroup moves a process to an existing cgroup, in every hierarchy that has
// it. The path is the operator's, from containerd's configuration.
func joinCgroup(path string, pid int) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("runtime option ShimCgroup: %q is not a clean absolute path: %w", path, errInvalid)
	}
	roots := []string{cgroupRoot}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return fmt.Errorf("runtime option ShimCgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			roots = append(roots, filepath.Join(cgroupRoot, e.Name()))
		}
	}
	joined := false
	for i, root := range roots {
		var fs unix.Statfs_t
		if unix.Statfs(root, &fs) != nil || (fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC) {
			continue
		}
		err := writeFile(filepath.Join(root, path, "cgroup.procs"), strconv.Itoa(pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("runtime option ShimCgroup: %w", err)
		}
		joined = true
		if i == 0 {
			break // unified: what is below it are groups, not hierarchies
		}
	}
	if !joined {
		return fmt.Errorf("runtime option ShimCgroup: %s: no hierarchy has this cgroup: %w", path, errNotFound)
	}
	return nil
}
