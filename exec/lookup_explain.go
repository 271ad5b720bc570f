package exec

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// headSize is how much of a program ExplainExec reads, in bytes. Linkers put
// the name of the ELF interpreter on the first page.
const headSize = 8192

// maxInterpreters is how many scripts in a row the kernel follows:
// fs/exec.c, exec_binprm ("This allows 4 levels of binfmt rewrites before
// failing hard").
const maxInterpreters = 5

// ExplainExec turns an errno of execve into text that names what was missing:
// a script's interpreter, an ELF interpreter (the dynamic loader), the right
// architecture. Only execve knows these; Lookup has succeeded before.
//
// path is absolute inside the container's root; see InCwd. A relative one gets
// the text of the errno and no more. read fills buf with
// the first bytes of a file and returns how many there were; it may return
// them together with an error. The files may have changed since execve, so the
// text is the best guess, while the errno stays the one that execve gave.
//
// The error is a *LookupError.
func ExplainExec(r Resolver, path string, read func(path string, buf []byte) (int, error), errno unix.Errno) error {
	x := explainer{r: r, read: read, errno: errno}
	before, after := x.explain(path, 0)
	return &LookupError{Command: path, Err: &reasonError{before, errno, after}}
}

type explainer struct {
	r     Resolver
	read  func(string, []byte) (int, error)
	errno unix.Errno
}

// explain returns words to put before and after the text of the errno; both
// are empty if there is nothing to add.
func (x *explainer) explain(path string, depth int) (before, after string) {
	switch x.errno {
	case unix.ENOENT, unix.ENOEXEC, unix.EACCES, unix.ELOOP, unix.ELIBBAD, unix.ENOTDIR, unix.ENAMETOOLONG:
	default:
		return "", "" // E2BIG, ETXTBSY, ENOMEM and others speak for themselves
	}
	if !strings.HasPrefix(path, "/") {
		return "", ""
	}
	if depth > maxInterpreters {
		return "", "too many interpreters of interpreters"
	}
	fi, err := x.r.Stat(path)
	if err != nil {
		return "", ""
	}
	if x.errno == unix.EACCES {
		if reason := (*reasonError)(nil); errors.As(fi.mayExecute(User{DACOverride: true}), &reason) {
			return "", reason.after
		}
		if fi.Mode&0o111 == 0 {
			return "", "has no execute permission"
		}
	}
	if fi.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", ""
	}
	buf := make([]byte, headSize)
	n, err := x.read(path, buf)
	if n <= 0 {
		if err == nil && x.errno == unix.ENOEXEC {
			return "", "the file is empty"
		}
		return "", ""
	}
	return x.contents(buf[:min(n, len(buf))], depth)
}

func (x *explainer) contents(head []byte, depth int) (before, after string) {
	switch {
	case strings.HasPrefix(string(head[:min(2, len(head))]), "#!"):
		interp, problem := shebang(head)
		if problem != "" {
			// ENOEXEC, or EACCES: a file that ends after #! has the empty path as
			// its interpreter, which is the working directory for the kernel.
			if x.errno == unix.ENOEXEC || x.errno == unix.EACCES {
				return "", problem
			}
			return "", ""
		}
		return x.interpreter("interpreter", interp, depth)
	case isELF(head):
		f := parseELF(head)
		if x.errno == unix.ENOEXEC {
			return "", f.foreign()
		}
		if f.interp != "" {
			return x.interpreter("ELF interpreter", f.interp, depth)
		}
		return "", ""
	case x.errno == unix.ENOEXEC:
		return "", "neither an ELF program nor a script that starts with #!"
	}
	return "", ""
}

// interpreter explains a failure by what a program needs to run.
func (x *explainer) interpreter(what, name string, depth int) (before, after string) {
	before = what + " " + quote(name)
	if strings.HasSuffix(name, "\r") {
		after = "the script has Windows line ends (CR LF)"
	}
	if !strings.HasPrefix(name, "/") {
		if after == "" {
			after = "its name is relative to the working directory"
		}
		return before, after
	}
	_, err := x.r.Stat(name)
	switch {
	case err != nil && (errors.Is(err, x.errno) || x.errno == unix.ENOENT):
		return before, after
	case err != nil:
		return "", ""
	}
	// It is there, so it may be its own interpreter that is missing.
	deeper, words := x.explain(name, depth+1)
	switch {
	case deeper != "":
		return before + " needs " + deeper, words
	case words != "" || x.errno == unix.ELIBBAD || after != "":
		if words == "" {
			words = after
		}
		return before, words
	}
	return "", ""
}

// scriptBuffer is how much of a script the kernel looks at, in bytes
// (BINPRM_BUF_SIZE in include/uapi/linux/binfmts.h, 256 since Linux 5.1).
const scriptBuffer = 256

// shebang returns the interpreter named in the first line of a script, which
// starts with "#!", as fs/binfmt_script.c reads it: blanks and tabs separate,
// a carriage return belongs to the name. problem says why the kernel finds no
// name.
func shebang(head []byte) (interp, problem string) {
	head = head[:min(len(head), scriptBuffer)]
	line := string(head[2:])
	// A shorter file is followed by NULs in the kernel's buffer.
	complete := len(head) < scriptBuffer
	if i := strings.IndexAny(line, "\n\x00"); i >= 0 {
		line, complete = line[:i], true
	}
	line = strings.TrimLeft(line, " \t")
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		if !complete {
			return "", "the name of the interpreter after #! is too long"
		}
		end = len(line)
	}
	if end == 0 {
		return "", "no interpreter is named after #!"
	}
	return line[:end], ""
}
