package cgroups

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ibex-run/ibex/pathsafe"
)

// Mode is how the host has its hierarchies mounted.
type Mode int

// The modes.
const (
	// V1: each controller has a hierarchy of version 1.
	V1 Mode = iota + 1
	// Hybrid: as V1, and a hierarchy of version 2 without controllers beside
	// them. It kills whole trees (cgroup.kill) and takes newborn processes
	// (CLONE_INTO_CGROUP).
	Hybrid
	// V2: one hierarchy with all controllers.
	V2
)

// String names the mode.
func (m Mode) String() string {
	switch m {
	case V1:
		return "v1"
	case Hybrid:
		return "hybrid"
	case V2:
		return "v2"
	}
	return "no cgroups"
}

// Hierarchy is a mounted hierarchy of version 1.
type Hierarchy struct {
	// Name is the last component of the mount point, such as "cpu,cpuacct".
	Name string
	// Controllers are the kernel's names, such as "cpu" and "cpuacct". A
	// hierarchy without controllers has "name=systemd" or the like.
	Controllers []string
	Dir         *pathsafe.Dir
}

// Layout is where the hierarchies are. It holds one directory descriptor for
// each of them and is used for the life of the process.
type Layout struct {
	Mode Mode
	// V1 is in the order of the mount table; empty in mode V2.
	V1 []Hierarchy
	// Unified is the root of version 2; nil in mode V1.
	Unified *pathsafe.Dir
}

// Detect finds the hierarchies in the mount table and opens their roots. Type,
// root inode and mount id of each are checked, see pathsafe.OpenHierarchy.
func Detect() (*Layout, error) {
	mounts, err := pathsafe.MountInfo()
	if err != nil {
		return nil, err
	}
	return detect(mounts)
}

// Close closes the descriptors.
func (l *Layout) Close() {
	for _, h := range l.V1 {
		_ = h.Dir.Close()
	}
	if l.Unified != nil {
		_ = l.Unified.Close()
	}
	l.V1, l.Unified = nil, nil
}

// Hierarchy gives the hierarchy of a version 1 controller, or nil.
func (l *Layout) Hierarchy(controller string) *Hierarchy {
	for i := range l.V1 {
		if slices.Contains(l.V1[i].Controllers, controller) {
			return &l.V1[i]
		}
	}
	return nil
}

func detect(mounts []pathsafe.MountInfoEntry) (_ *Layout, err error) {
	l := &Layout{}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	var refused []error
	for _, m := range byPreference(mounts) {
		var controllers []string
		switch m.FSType {
		case "cgroup":
			controllers = superControllers(m.SuperOptions)
			if len(controllers) == 0 || l.Hierarchy(controllers[0]) != nil {
				continue
			}
		case "cgroup2":
			if l.Unified != nil {
				continue
			}
		}
		// A mount that another one hides fails here: the mount id that the path
		// leads to is not the one of the table's line.
		dir, err := pathsafe.OpenHierarchy(m)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		if m.FSType == "cgroup2" {
			l.Unified = dir
			continue
		}
		l.V1 = append(l.V1, Hierarchy{Name: path.Base(m.MountPoint), Controllers: controllers, Dir: dir})
	}
	if l.Mode = l.mode(); l.Mode == 0 {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", errors.Join(append(refused, ErrNoController)...))
	}
	return l, nil
}

// mode judges by the controllers: systemd leaves a named hierarchy of version 1
// beside a version 2 that has them all on some hosts.
func (l *Layout) mode() Mode {
	owned := slices.ContainsFunc(l.V1, func(h Hierarchy) bool {
		return !strings.HasPrefix(h.Controllers[0], "name=")
	})
	switch {
	case owned && l.Unified != nil:
		return Hybrid
	case owned:
		return V1
	case l.Unified != nil:
		return V2
	}
	return 0
}

// byPreference keeps the mounts of whole hierarchies. Those below /sys/fs/cgroup
// come first: a second mount of a hierarchy elsewhere is somebody's private one.
func byPreference(mounts []pathsafe.MountInfoEntry) []pathsafe.MountInfoEntry {
	var first, second []pathsafe.MountInfoEntry
	for _, m := range mounts {
		switch {
		case m.Root != "/" || m.FSType != "cgroup" && m.FSType != "cgroup2":
		case m.MountPoint == cgroupRoot || strings.HasPrefix(m.MountPoint, cgroupRoot+"/"):
			first = append(first, m)
		default:
			second = append(second, m)
		}
	}
	return append(first, second...)
}

const cgroupRoot = "/sys/fs/cgroup"

// superControllers picks the controllers out of the options of a version 1
// superblock: what is left without the flags that cgroup1_show_options prints
// (kernel/cgroup/cgroup-v1.c) and those of the VFS and of security modules.
func superControllers(options string) []string {
	var names []string
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "rw", "ro", "sync", "dirsync", "mand", "lazytime", "noprefix", "clone_children", "xattr",
			"cpuset_v2_mode", "favordynmods", "seclabel", "none", "all", "":
			continue
		}
		if key, _, ok := strings.Cut(o, "="); ok && key != "name" {
			continue // release_agent=, and labels of security modules
		}
		names = append(names, o)
	}
	return names
}

// MountDir is a directory of the container's cgroup for its /sys/fs/cgroup.
type MountDir struct {
	// Name is the directory below /sys/fs/cgroup, such as "cpu,cpuacct". Empty
	// for version 2, whose directory is /sys/fs/cgroup itself.
	Name string
	// Links are the names by which programs look for a shared hierarchy: "cpu",
	// "cpuacct".
	Links []string
	// FSType is "cgroup" or "cgroup2" and Data the mount options that select the
	// hierarchy, for a mount of its own in a cgroup namespace.
	FSType string
	Data   string
	// FD is the directory, O_PATH, borrowed from the Group.
	FD int
}

// MountDir describes h, whose directory of the group is fd.
func (h *Hierarchy) MountDir(fd int) MountDir {
	m := MountDir{Name: h.Name, FSType: "cgroup", Data: strings.Join(h.Controllers, ","), FD: fd}
	if len(h.Controllers) > 1 {
		for _, c := range h.Controllers {
			if c != h.Name {
				m.Links = append(m.Links, c)
			}
		}
	}
	return m
}
