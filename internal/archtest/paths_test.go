package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// pathPackages may turn a path into a descriptor or change what a path names.
// Everyone else asks pathsafe, so that there is one place to check.
var pathPackages = []string{"pathsafe", "internal/linux", "internal/fd", "internal/probe", "exec/plan"}

// commandLines open what the person who calls them names: that person is root,
// and the paths are their own. What comes from an image goes through container.
var commandLines = []string{"cmd/ibex"}

// pathFuncs are the functions that take a path and follow it. A name that ends
// in * is a prefix.
var pathFuncs = map[string][]string{
	"os": {
		"Open*", "Create*", "ReadFile", "WriteFile", "ReadDir", "Mkdir*", "Remove*", "Rename", "Chmod", "Chown", "Lchown", "Chtimes",
		"Chdir", "Symlink", "Link", "Readlink", "Stat", "Lstat", "Truncate", "DirFS", "Root", "StartProcess",
	},
	"path/filepath": {"EvalSymlinks", "Glob", "Walk*"},
	"os/exec":       {"Command*"},
	"syscall":       systemCalls,
	xsys:            systemCalls,
}

var systemCalls = []string{
	"Open", "Openat*", "OpenTree*", "OpenByHandleAt", "Creat", "Mkdir*", "Unlink*", "Rmdir", "Rename*", "Mknod*", "Mkfifo*", "Symlink*", "Link*", "Readlink*", "Mount", "MountSetattr",
	"Unmount", "MoveMount", "Fspick", "Chdir", "Chroot", "PivotRoot", "Chmod", "Chown", "Lchown", "Fchownat", "Fchmodat*", "Faccessat*",
	"Access", "Stat", "Lstat", "Fstatat", "Statx", "Statfs", "Truncate", "Utimes*", "Setxattr", "Lsetxattr", "ForkExec", "StartProcess", "Exec",
}

// rawPaths forbids opening paths, and spelling out kernel file systems, outside
// the packages that exist for it.
func rawPaths(s *source) []string {
	if s.ast == nil || s.isTool() {
		return nil
	}
	if slices.Contains(pathPackages, s.dir()) || slices.Contains(commandLines, s.dir()) {
		return nil
	}
	var bad []string
	walkCalls(s, func(pkg, name string, at token.Pos) {
		if !matches(pathFuncs[pkg], name) {
			return
		}
		short := pkg[strings.LastIndex(pkg, "/")+1:] + "." + name
		if !allowed(s, short) {
			bad = append(bad, complaint(s, s.line(at), "%s follows a path: use pathsafe", short))
		}
	})
	ast.Inspect(s.ast, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		for _, prefix := range []string{"/proc/", "/sys/"} {
			if strings.HasPrefix(text, prefix) && !allowed(s, text) {
				bad = append(bad, complaint(s, s.line(lit.Pos()), "%q: use the handles of pathsafe", text))
			}
		}
		return true
	})
	return bad
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if prefix, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return name == p
	})
}
