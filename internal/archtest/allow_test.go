package archtest

import "slices"

// exception allows some things in one file.
type exception struct {
	file string
	why  string
	what []string // import paths, PACKAGE.FUNCTION, string literals, go:linkname, init, func NAME
}

// exceptions is the only list of them. What is not needed any more fails.
var exceptions = []exception{
	{"exec/plan/fork_unsafe.go", "the fork hooks that the Go runtime keeps for such users", []string{"go:linkname"}},
	{"exec/caps.go", "execve of an empty path always fails; the Go runtime undoes its RLIMIT_NOFILE before it tries", []string{"unix.Exec"}},
	{"exec/compile.go", "the order of the steps stands in one place", []string{"func compile"}},
	{"cmd/ibex/update.go", "one statement for each flag", []string{"func updateCmd"}},

	{"cgroups/layout.go", "a constant: where /sys/fs/cgroup is mounted is compared, not opened", []string{"/sys/fs/cgroup"}},
	{"container/lookup.go", "the name of a program in the container is compared, not opened", []string{"/proc/", "/sys/"}},
	{
		"internal/exeseal/seal.go", "the installed program, its own descriptor, which it is executed from, and an empty directory of its own", []string{
			"os.Open", "os.OpenFile", "os.Remove", "os.MkdirTemp", "unix.Openat", "/proc/self/fd/%d", "/proc/self/comm",
		},
	},
	{"internal/exeseal/reexec.go", "the running program is looked at and executed again, sealed", []string{"unix.Exec", "unix.Open", "/proc/self/exe"}},
	{"container/validate.go", "a destination in the container is compared, not opened", []string{"/proc/"}},

	// container/rootfs makes mounts. What it opens by path is its own detached
	// tmpfs, which nobody else can reach yet; attributes are set on descriptors.
	{
		"container/rootfs/dev.go", "nodes and links in a detached tmpfs", []string{
			"unix.Mkdirat", "unix.Symlinkat", "unix.Mknodat", "unix.Fchmodat", "unix.Fchownat",
			"/proc/self/fd", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
		},
	},
	{
		"container/rootfs/copyup.go", "an image that nothing runs in, by one name at a time without links, and a detached tmpfs", []string{
			"unix.Openat2", "unix.Fstatat", "unix.Readlinkat", "unix.Symlinkat", "unix.Mknodat", "unix.Fchownat", "unix.Fchmodat",
			"unix.UtimesNanoAt", "unix.Mkdirat",
		},
	},
	{"container/rootfs/through.go", "an image that nothing runs in, inside its root", []string{"unix.Openat2", "unix.Readlinkat"}},
	{"container/rootfs/cgroupfs.go", "names in a detached tmpfs", []string{"unix.Mkdirat", "unix.Symlinkat", "unix.MountSetattr"}},
	{"container/rootfs/idmap.go", "an empty path: the descriptor itself", []string{"unix.MountSetattr"}},
	{"container/rootfs/newmount.go", "an empty path: the descriptor itself", []string{"unix.MountSetattr", "unix.OpenTree"}},
	{"container/rootfs/pty.go", "ptmx of the container's own devpts, by a held descriptor and without links", []string{"unix.Openat2"}},

	// The shim opens what containerd names, which is trusted, and what is its own.
	{
		"shim/bootstrap.go", "the server's start, once for each pod; log programs; files of the bundle, which is the working directory", []string{
			"os/exec", "exec.Command", "exec.CommandContext", "os.Open", "os.OpenFile", "os.ReadFile", "os.Remove", "os.Symlink",
			"/proc/%d/oom_score_adj",
		},
	},
	{"shim/cgroup.go", "the cgroup that an option names for the shim itself", []string{"os.ReadDir", "unix.Statfs", "/sys/fs/cgroup"}},
	{"shim/delete.go", "the link to the socket directory in the bundle", []string{"os.Readlink"}},
	{"shim/fifo.go", "FIFOs and log files that the client names", []string{"os.Stat", "os.MkdirAll", "unix.Open"}},
	{"shim/log.go", "the log FIFO in the bundle", []string{"unix.Open"}},
	{"shim/logger.go", "the log program that the client names: whose it is", []string{"unix.Stat"}},
	{"shim/options.go", "the file that the option ConfigPath names", []string{"os.Open"}},
	{"shim/serve.go", "the bundle is the working directory; the debug socket", []string{"os.Chdir", "os.Remove"}},
	{
		"shim/socket.go", "the socket and its directory, checked by owner and mode; whether its user lives in this PID namespace", []string{
			"os.Remove", "os.Chmod", "os.MkdirAll", "os.Lstat", "unix.Open", "syscall.Stat", "/proc/self/ns/", "/proc/%d/ns/%s",
		},
	},
}

// used notes which exceptions were needed.
var used = map[[2]string]bool{}

func allowed(s *source, what string) bool {
	for _, e := range exceptions {
		if e.file == s.name && slices.Contains(e.what, what) {
			used[[2]string{e.file, what}] = true
			return true
		}
	}
	return false
}
