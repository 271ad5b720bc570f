package container

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/exec"
	"github.com/ibex-run/ibex/pathsafe"
)

// resolver looks into the container's root for package exec.
type resolver struct {
	root *pathsafe.Dir
	// mapped: the ids that Stat gives are the host's, a process's the
	// container's; whether it may execute a file is for the kernel to say.
	mapped bool
}

func (r resolver) Stat(path string) (exec.FileInfo, error) {
	p, err := pathsafe.ParseInRoot(path)
	if err != nil {
		return exec.FileInfo{}, unix.ENAMETOOLONG
	}
	id, err := r.root.Stat(p)
	return exec.FileInfo{Mode: id.Mode, UID: id.UID, GID: id.GID, Unsure: r.mapped}, err
}

func (r resolver) read(path string, buf []byte) (int, error) {
	p, err := pathsafe.ParseInRoot(path)
	if err != nil {
		return 0, err
	}
	return r.root.ReadHead(p, buf)
}

// lookup finds the program of a process.
func (c *Container) lookup(p *exec.Process) (string, error) { return c.lookupIn(c.resolver(), p) }

func (c *Container) lookupIn(r resolver, p *exec.Process) (string, error) {
	path, set := "", false
	for _, e := range p.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path, set = v, true
		}
	}
	const dacOverride = 1 << unix.CAP_DAC_OVERRIDE
	return exec.Lookup(r, cwdOf(p), p.Args[0], path, set, exec.User{
		UID: p.UID, GID: p.GID, Groups: p.Groups, DACOverride: p.Caps.Effective&dacOverride != 0,
	})
}

// lookupEarly finds out whether the program is missing before there is a cgroup,
// a mount or a process. It is silent where it cannot know: without a root that
// can be read, or where one of the spec's mounts may bring the program.
func (c *Container) lookupEarly(root *pathsafe.Dir) error {
	p := c.init.spec
	if root == nil || c.spec.Process == nil || mayBring(c.spec.Mounts, p.Args[0]) {
		return nil
	}
	_, err := c.lookupIn(resolver{root, private(c.spec, specs.UserNamespace)}, p)
	return err
}

// mayBring reports whether a mount may hold the program, or what a link on the
// way to it leads to. Empty file systems and the kernel's own bring none, nor do
// the files that every engine mounts in /etc.
func mayBring(mounts []specs.Mount, program string) bool {
	for _, dir := range []string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(path.Clean(program)+"/", dir) {
			return true
		}
	}
	for _, m := range mounts {
		switch m.Type {
		case "proc", "sysfs", "devpts", "mqueue", "cgroup", "cgroup2":
			continue
		case "tmpfs":
			if !isBind(m) && !slices.Contains(m.Options, "tmpcopyup") {
				continue
			}
		}
		switch path.Clean("/" + m.Destination) {
		case "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/shm":
			continue
		}
		return true
	}
	return false
}

func (c *Container) resolver() resolver {
	return resolver{c.root, private(c.spec, specs.UserNamespace)}
}

func cwdOf(p *exec.Process) string {
	if p.Cwd == "" {
		return "/"
	}
	return p.Cwd
}

// explain says what only execve can know: which interpreter is missing, and so
// on. Other errors pass.
func (p *Process) explain(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) || !exec.IsExecve(err) {
		return err
	}
	r := p.c.resolver()
	path := p.path
	if path == "" {
		path, _ = p.c.lookup(p.spec)
	}
	return exec.ExplainExec(r, exec.InCwd(cwdOf(p.spec), path), r.read, errno)
}

// passwdMax bounds what is read of the image's /etc/passwd.
const passwdMax = 1 << 20

// setHome sets HOME where the process has none, from the image's /etc/passwd, as
// users of OCI runtimes expect; "/" for a user who is not in it. An empty value
// is none.
func setHome(p *exec.Process, root *pathsafe.Dir) {
	for i, e := range p.Env {
		switch {
		case e == "HOME=":
			p.Env = slices.Delete(slices.Clone(p.Env), i, i+1)
			setHome(p, root)
			return
		case strings.HasPrefix(e, "HOME="):
			return
		}
	}
	dir := "/"
	if path, err := pathsafe.ParseInRoot("/etc/passwd"); err == nil && root != nil {
		// Most are small; what is longer than the first buffer is read again.
		for _, size := range []int{1 << 10, 8 << 10, passwdMax} {
			buf := make([]byte, size)
			n, err := root.ReadHead(path, buf)
			if err != nil {
				break
			}
			dir = homeIn(string(buf[:n]), p.UID)
			if n < size {
				break
			}
		}
	}
	p.Env = append(p.Env[:len(p.Env):len(p.Env)], "HOME="+dir)
}

// lastOfEach keeps the last value of a variable that is there more than once:
// getenv(3) would find the first, shells the last. What is no NAME=VALUE stays.
func lastOfEach(env []string) []string {
	last := make(map[string]int, len(env))
	for i, e := range env {
		if name, _, ok := strings.Cut(e, "="); ok {
			last[name] = i
		}
	}
	if len(last) == len(env) {
		return env
	}
	var out []string
	for i, e := range env {
		if name, _, ok := strings.Cut(e, "="); !ok || last[name] == i {
			out = append(out, e)
		}
	}
	return out
}
