package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	netnsDir   = "/run/netns"
)

// cgroups finds the topmost cgroups with the prefix, in every hierarchy.
func (c *cleaner) cgroups() []string {
	var found []string
	_ = filepath.WalkDir(cgroupRoot, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil // cgroups come and go while we look
		}
		if !strings.HasPrefix(e.Name(), c.prefix) {
			return nil
		}
		if c.abandoned(path) && c.ownerDirGone(e.Name()) {
			found = append(found, path)
		}
		return fs.SkipDir
	})
	return found
}

// ownerDirGone reports that no run with a directory of the same name goes on.
func (c *cleaner) ownerDirGone(name string) bool {
	dir := filepath.Join("/tmp", name)
	if _, err := os.Lstat(dir); err != nil {
		return true
	}
	return c.abandoned(dir)
}

func (c *cleaner) removeCgroups(groups []string) {
	for _, g := range groups {
		var dirs []string
		_ = filepath.WalkDir(g, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			// A frozen cgroup on v1 keeps its processes; endProcesses has killed them.
			if err := unix.Rmdir(dirs[i]); err == nil {
				c.say("cgroup", dirs[i])
			}
		}
	}
}

// unmount detaches the mounts at or below dirs, the newest first.
func (c *cleaner) unmount(dirs []string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read mountinfo: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		if len(fields) < 5 {
			continue
		}
		for _, d := range dirs {
			if at := fields[4]; at == d || strings.HasPrefix(at, d+"/") {
				c.say("mount", at)
				if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
					return fmt.Errorf("umount2 %s: %w", at, err)
				}
				break
			}
		}
	}
	return nil
}

func (c *cleaner) removeNetns() {
	found, _ := filepath.Glob(filepath.Join(netnsDir, c.prefix+"*"))
	for _, f := range found {
		if !c.abandoned(f) {
			continue
		}
		c.say("network namespace", f)
		_ = unix.Unmount(f, unix.MNT_DETACH) // EINVAL: a name without a mount
		_ = os.Remove(f)
	}
}
