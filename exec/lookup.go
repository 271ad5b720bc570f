package exec

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// DefaultPath is searched when a process has no PATH, or an empty one.
//
// POSIX lets execvp(3) choose then, and C libraries differ: glibc takes
// "/bin:/usr/bin", an empty PATH means the working directory, Go's LookPath
// finds nothing. Images are made with the directories below in mind, and a
// search of the working directory nobody asked for is a trap.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// FileInfo is what a Resolver knows of a path after following every link.
type FileInfo struct {
	Mode     uint32 // as in struct stat
	UID, GID uint32 // in the same user namespace as User's
	// NoExec says that the file is on a mount with noexec.
	NoExec bool
	// Unsure says that the mode bits do not tell whether the user may execute
	// the file, because of an access control list or mapped ids. One x bit is
	// enough then, and execve decides.
	Unsure bool
}

// Resolver looks at files inside the root of a container.
type Resolver interface {
	// Stat resolves an absolute path, as the kernel does for a process whose
	// root that is. The errno of the error is reachable by errors.Is.
	Stat(path string) (FileInfo, error)
}

// User is who executes a file.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	// DACOverride says that CAP_DAC_OVERRIDE is in the effective set: one x bit,
	// whosever it is, is enough.
	DACOverride bool
}

// Lookup finds the program for arg0, as execvp(3) does, before anything is
// forked. It returns what to pass to execve: arg0 itself if that contains a
// slash, otherwise a path made of an element of path, which may be relative to
// the working directory if the element is.
//
// cwd is the process's working directory, absolute. path is the value of PATH;
// pathSet is false if there is no such variable. An empty element stands for
// cwd.
//
// The search goes on after ENOENT, ENOTDIR, EACCES, ELOOP and ENAMETOOLONG.
// If nothing is found, the error is that of the first file that may not be
// executed, or of the first name that did not resolve, or "executable file not
// found in $PATH". Any other error ends the search.
//
// The error is a *LookupError.
func Lookup(r Resolver, cwd, arg0, path string, pathSet bool, u User) (string, error) {
	switch {
	case arg0 == "":
		return "", &LookupError{Err: &reasonError{"args[0] is empty", unix.ENOENT, ""}}
	case strings.IndexByte(arg0, 0) >= 0:
		return "", &LookupError{Command: arg0, Err: &reasonError{"args[0] contains a NUL", unix.EINVAL, ""}}
	case strings.IndexByte(arg0, '/') >= 0:
		if err := check(r, InCwd(cwd, arg0), u); err != nil {
			return "", &LookupError{Command: arg0, Err: statText(arg0, err)}
		}
		return arg0, nil
	case len(arg0) > nameMax:
		return "", &LookupError{Command: arg0, Err: unix.ENAMETOOLONG}
	}
	if !pathSet || path == "" {
		path = DefaultPath
	}
	return search(r, cwd, arg0, path, u)
}

// Limits of the kernel: include/uapi/linux/limits.h. PATH_MAX counts the NUL.
const (
	nameMax = 255
	pathMax = 4096 - 1
)

func search(r Resolver, cwd, name, path string, u User) (string, error) {
	var denied, odd error
	for dir := range strings.SplitSeq(path, ":") {
		file := "./" + name
		if dir != "" {
			file = strings.TrimSuffix(dir, "/") + "/" + name
		}
		err := check(r, InCwd(cwd, file), u)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		case errors.Is(err, unix.EACCES):
			if denied == nil {
				denied = statText(file, err)
			}
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
			if odd == nil {
				odd = statText(file, err)
			}
		default:
			return "", &LookupError{Command: name, Err: statText(file, err)}
		}
	}
	switch {
	case denied != nil:
		return "", &LookupError{Command: name, Err: denied}
	case odd != nil:
		return "", &LookupError{Command: name, Err: odd}
	}
	return "", &LookupError{Command: name, Err: errNotInPath}
}

// InCwd returns path, relative to cwd if it is not absolute. Apart
// from "./" in front it does not clean the path: "a/.." is not "." if a is a
// link.
func InCwd(cwd, path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	for strings.HasPrefix(path, "./") {
		path = strings.TrimLeft(path[1:], "/")
	}
	return strings.TrimSuffix(cwd, "/") + "/" + path
}

// check says whether u may execute the file at an absolute path.
func check(r Resolver, path string, u User) error {
	if len(path) > pathMax {
		return unix.ENAMETOOLONG
	}
	fi, err := r.Stat(path)
	if err != nil {
		return err
	}
	return fi.mayExecute(u)
}

func (fi FileInfo) mayExecute(u User) error {
	switch {
	case fi.Mode&unix.S_IFMT == unix.S_IFDIR:
		return &reasonError{"", unix.EACCES, "is a directory"}
	case fi.Mode&unix.S_IFMT != unix.S_IFREG:
		return &reasonError{"", unix.EACCES, "is not a regular file"}
	case fi.NoExec:
		return &reasonError{"", unix.EACCES, "is on a mount with noexec"}
	case fi.Mode&0o111 == 0:
		return unix.EACCES // capabilities(7): not even with CAP_DAC_OVERRIDE
	case u.DACOverride || fi.Unsure:
		return nil
	}
	// path_resolution(7): the first class that fits decides alone.
	bit := uint32(0o001)
	if fi.UID == u.UID {
		bit = 0o100
	} else if u.inGroup(fi.GID) {
		bit = 0o010
	}
	if fi.Mode&bit == 0 {
		return unix.EACCES
	}
	return nil
}

func (u User) inGroup(gid uint32) bool {
	if u.GID == gid {
		return true
	}
	for _, g := range u.Groups {
		if g == gid {
			return true
		}
	}
	return false
}

// LookupError reports a command that cannot be executed. Its texts are an
// interface: callers look for the command together with
//
//	executable file not found in $PATH    exit code 127
//	no such file or directory             127
//	not a directory                       127
//	permission denied                     126
//
// and no error contains one of them without being that error. The errno is
// reachable by errors.Is; the first two are fs.ErrNotExist as well.
type LookupError struct {
	Command string
	Err     error
}

func (e *LookupError) Error() string { return "exec: " + quote(e.Command) + ": " + e.Err.Error() }

// Unwrap lets errors.Is(err, unix.ENOENT) work.
func (e *LookupError) Unwrap() error { return e.Err }

// maxShown is how many bytes of a name a message shows.
const maxShown = 200

func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for cut > maxShown-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func quote(s string) string { return strconv.Quote(shorten(s)) }

// statText adds the path to an error that is about resolving it.
func statText(path string, err error) error {
	var reason *reasonError
	if errors.As(err, &reason) {
		return err
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		if errno == unix.EACCES {
			return errno
		}
		err = errno
	}
	return &fs.PathError{Op: "stat", Path: printable(shorten(path)), Err: err}
}

// printable escapes what would break the line of a message.
func printable(s string) string {
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// reasonError is an errno with words around it.
type reasonError struct {
	before string // ends up before the errno's text
	errno  unix.Errno
	after  string
}

func (e *reasonError) Error() string {
	s := e.errno.Error()
	if e.before != "" {
		s = e.before + ": " + s
	}
	if e.after != "" {
		s += ": " + e.after
	}
	return s
}

func (e *reasonError) Unwrap() error { return e.errno }

// errNotInPath is ENOENT in the words that callers know.
var errNotInPath error = notInPath{}

type notInPath struct{}

func (notInPath) Error() string { return "executable file not found in $PATH" }
func (notInPath) Unwrap() error { return unix.ENOENT }
