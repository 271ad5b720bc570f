package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

type cleaner struct {
	prefix string
	busy   bool      // a Go test runs
	young  time.Time // what is younger may be its
	taken  []string
}

func (c *cleaner) run() error {
	var errs []error
	dirs := c.find("/tmp", "/var/tmp", os.TempDir())
	for _, d := range dirs {
		// Processes first: they hold everything else.
		errs = append(errs, c.end(d))
	}
	for _, g := range c.cgroups() {
		c.took("cgroup %s", g)
		errs = append(errs, ktest.RemoveCgroup(g))
	}
	for _, f := range c.find("/run/netns") {
		c.took("network namespace %s", f)
		_ = unix.Unmount(f, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // EINVAL: a name without a mount
		errs = append(errs, os.Remove(f))
	}
	for _, d := range dirs {
		c.took("directory %s, with %d mounts", d, len(ktest.MountsBelow(d)))
		errs = append(errs, ktest.UnmountBelow(d))
		for _, socket := range sockets(d) {
			c.took("socket %s", socket)
			errs = append(errs, os.Remove(socket))
		}
		if len(ktest.MountsBelow(d)) == 0 { // never delete through a mount
			errs = append(errs, os.RemoveAll(d))
		}
	}
	return errors.Join(errs...)
}

// find lists what is in parents with the prefix and belongs to no living run.
func (c *cleaner) find(parents ...string) []string {
	slices.Sort(parents)
	var found []string
	for _, parent := range slices.Compact(parents) {
		names, _ := filepath.Glob(filepath.Join(parent, c.prefix+"*")) // the pattern is well-formed
		for _, name := range names {
			if c.abandoned(name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// cgroups lists cgroups with the prefix, as paths below the hierarchies.
func (c *cleaner) cgroups() []string {
	var found []string
	for _, h := range ktest.CgroupMounts() {
		groups, _ := filepath.Glob(filepath.Join(h.Dir, c.prefix+"*"))
		for _, g := range groups {
			// The directory of the same name says whose it is, if there is one.
			name, whose := filepath.Base(g), g
			if dir := filepath.Join(os.TempDir(), name); exists(dir) {
				whose = dir
			}
			if c.abandoned(whose) {
				found = append(found, "/"+name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// abandoned tells whether the run that made path has ended.
func (c *cleaner) abandoned(path string) bool {
	text, err := os.ReadFile(filepath.Join(path, "owner"))
	if f := strings.Fields(string(text)); err == nil && len(f) == 2 {
		pid, err := strconv.Atoi(f[0])
		if err != nil {
			return true
		}
		p, err := ktest.ReadProc(pid)
		return err != nil || strconv.FormatUint(p.Start, 10) != f[1]
	}
	if !c.busy {
		return true
	}
	st, err := os.Lstat(path)
	return err == nil && st.ModTime().Before(c.young)
}

// end kills the processes that name dir on their command line, as containerd and
// the shims do, or in their environment, as everything started by a test does.
func (c *cleaner) end(dir string) error {
	mark := ktest.EnvName + "=" + dir
	seen := map[int]bool{}
	return ktest.Poll(10*time.Second, func() error {
		left := 0
		for _, p := range ktest.Procs() {
			if p.PID == os.Getpid() || p.State == 'Z' {
				continue
			}
			// The pidfd before the question whether it is one of them: after it the
			// number cannot come to mean another process.
			fd, err := unix.PidfdOpen(p.PID, 0)
			if err != nil {
				continue
			}
			if again, err := ktest.ReadProc(p.PID); err == nil && (names(again.Cmd, dir) || ktest.HasEnv(p.PID, mark)) {
				left++
				if !seen[p.PID] {
					seen[p.PID] = true
					c.took("%v", again)
				}
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // ESRCH: it has ended, as it should
			}
			unix.Close(fd)
		}
		if left > 0 {
			return fmt.Errorf("%d processes of %s do not end", left, dir)
		}
		return nil
	})
}

// sockets lists the sockets of killed shims that bundles below dir name. They are
// the only thing that is neither below dir nor has its name: containerd derives
// them from a hash.
func sockets(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{"bootstrap.json", "address"}, e.Name()) {
			return nil
		}
		text, _ := os.ReadFile(path)
		_, after, ok := strings.Cut(string(text), "unix://")
		socket, _, _ := strings.Cut(strings.TrimSpace(after), `"`)
		if st, err := os.Lstat(socket); ok && err == nil && st.Mode().Type() == fs.ModeSocket {
			found = append(found, socket)
		}
		return nil
	})
	return found
}

func names(args []string, dir string) bool {
	return slices.ContainsFunc(args, func(a string) bool { return a == dir || strings.Contains(a, dir+"/") })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (c *cleaner) took(format string, args ...any) {
	c.taken = append(c.taken, fmt.Sprintf(format, args...))
}
