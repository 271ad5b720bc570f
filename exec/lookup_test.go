package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree is a root in memory: what stands at a path, without links.
type tree map[string]node

type node struct {
	mode     uint32 // type and permissions; a regular file if there is no type
	uid, gid uint32
	noexec   bool
	unsure   bool
	err      unix.Errno // of Stat
	content  string
}

func (tr tree) Stat(path string) (FileInfo, error) {
	if !strings.HasPrefix(path, "/") {
		return FileInfo{}, unix.EBADF
	}
	n, ok := tr[path]
	switch {
	case !ok:
		return FileInfo{}, fmt.Errorf("open %s: %w", path, unix.ENOENT)
	case n.err != 0:
		return FileInfo{}, fmt.Errorf("open %s: %w", path, n.err)
	}
	if n.mode&unix.S_IFMT == 0 {
		n.mode |= unix.S_IFREG
	}
	return FileInfo{Mode: n.mode, UID: n.uid, GID: n.gid, NoExec: n.noexec, Unsure: n.unsure}, nil
}

func (tr tree) read(path string, buf []byte) (int, error) {
	n, ok := tr[path]
	if !ok {
		return 0, unix.ENOENT
	}
	return copy(buf, n.content), nil
}

var root = User{DACOverride: true}

// mustNotSay are the texts that callers map to exit codes: an error has the one
// of its errno and no other.
var mustNotSay = map[unix.Errno][]string{
	unix.ENOENT:       {"permission denied", "not a directory"},
	unix.EACCES:       {"no such file", "not found", "not a directory"},
	unix.ENOTDIR:      {"no such file", "not found", "permission denied"},
	unix.ELOOP:        {"no such file", "not found", "permission denied", "not a directory"},
	unix.ENAMETOOLONG: {"no such file", "not found", "permission denied", "not a directory"},
	unix.EIO:          {"no such file", "not found", "permission denied", "not a directory"},
	unix.EINVAL:       {"no such file", "not found", "permission denied", "not a directory"},
	unix.ENOEXEC:      {"no such file", "not found", "permission denied", "not a directory"},
}

func TestLookup(t *testing.T) {
	files := tree{
		"/bin/sh":            {mode: 0o755},
		"/usr/bin/sh":        {mode: 0o755},
		"/usr/bin/app":       {mode: 0o755},
		"/bin/plain":         {mode: 0o644},
		"/sbin/plain":        {mode: 0o755},
		"/bin/only-plain":    {mode: 0o644},
		"/bin/dir":           {mode: unix.S_IFDIR | 0o755},
		"/etc":               {mode: unix.S_IFDIR | 0o755},
		"/dev/null":          {mode: unix.S_IFCHR | 0o777},
		"/srv/run":           {mode: 0o755},
		"/srv/bin/tool":      {mode: 0o755},
		"/srv/../bin/sh":     {mode: 0o755},
		"/owned":             {mode: 0o100, uid: 1000, gid: 1000},
		"/group":             {mode: 0o010, uid: 1, gid: 50},
		"/other":             {mode: 0o001, uid: 1, gid: 1},
		"/not-owner":         {mode: 0o055, uid: 1000, gid: 50},
		"/not-group":         {mode: 0o705, uid: 1, gid: 50},
		"/zero":              {mode: 0},
		"/acl":               {mode: 0o750, unsure: true},
		"/acl-none":          {mode: 0o640, unsure: true},
		"/noexec/app":        {mode: 0o755, noexec: true},
		"/bin/loop":          {err: unix.ELOOP},
		"/bin/broken":        {err: unix.EIO},
		"/sbin/broken":       {mode: 0o755},
		"/bin/secret":        {err: unix.EACCES},
		"/bin/loop-then-app": {err: unix.ELOOP},
		"/sbin/loop-then-app": {
			mode: 0o755,
		},
		"/etc/passwd/x":   {err: unix.ENOTDIR},
		"/bin/via-file":   {err: unix.ENOTDIR},
		"/sbin/via-file":  {mode: 0o755},
		"/usr/local/bin":  {mode: unix.S_IFDIR | 0o755},
		"/loop/self":      {err: unix.ELOOP},
		"/long/component": {err: unix.ENAMETOOLONG},
		"/work/here":      {mode: 0o755},
	}
	alice := User{UID: 1000, GID: 1000, Groups: []uint32{50}}
	const path = "/bin:/sbin:/usr/bin"
	huge := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		name  string
		arg0  string
		path  string // "-": no PATH
		cwd   string
		user  User
		want  string
		errno unix.Errno
		text  string // "" if it does not matter
	}{
		{name: "first element wins", arg0: "sh", path: path, want: "/bin/sh"},
		{name: "later element", arg0: "app", path: path, want: "/usr/bin/app"},
		{name: "slash in the element", arg0: "sh", path: "/usr/bin/:/bin", want: "/usr/bin/sh"},
		{name: "root element", arg0: "owned", path: "/", user: alice, want: "/owned"},
		{name: "no PATH means the default", arg0: "app", path: "-", want: "/usr/bin/app"},
		{name: "an empty PATH means the default", arg0: "app", path: "", want: "/usr/bin/app"},
		{name: "an empty element is the working directory", arg0: "run", path: "/bin:", cwd: "/srv", want: "./run"},
		{name: "an empty element in between", arg0: "here", path: "/bin::/sbin", cwd: "/work", want: "./here"},
		{name: "a relative element", arg0: "tool", path: "bin", cwd: "/srv", want: "bin/tool"},
		{name: "missing", arg0: "nope", path: path, errno: unix.ENOENT, text: `exec: "nope": executable file not found in $PATH`},
		{name: "missing without PATH", arg0: "nope", path: "-", errno: unix.ENOENT, text: `exec: "nope": executable file not found in $PATH`},
		{name: "goes on after a file that is not executable", arg0: "plain", path: path, want: "/sbin/plain"},
		{name: "goes on after ENOTDIR", arg0: "via-file", path: path, want: "/sbin/via-file"},
		{name: "goes on after ELOOP", arg0: "loop-then-app", path: path, want: "/sbin/loop-then-app"},
		{name: "remembers EACCES of a file", arg0: "only-plain", path: path, errno: unix.EACCES, text: `exec: "only-plain": permission denied`},
		{name: "remembers EACCES of a directory on the way", arg0: "secret", path: path, errno: unix.EACCES, text: `exec: "secret": permission denied`},
		{name: "remembers ELOOP", arg0: "loop", path: path, errno: unix.ELOOP, text: `exec: "loop": stat /bin/loop: too many levels of symbolic links`},
		{name: "a directory in PATH", arg0: "dir", path: path, errno: unix.EACCES, text: `exec: "dir": permission denied: is a directory`},
		{name: "another error ends the search", arg0: "broken", path: path, errno: unix.EIO},

		{name: "absolute", arg0: "/bin/sh", path: "-", want: "/bin/sh"},
		{name: "relative", arg0: "./run", path: "-", cwd: "/srv", want: "./run"},
		{name: "relative without a dot", arg0: "bin/tool", path: path, cwd: "/srv", want: "bin/tool"},
		{name: "relative in the root", arg0: "./owned", path: path, cwd: "/", user: alice, want: "./owned"},
		{name: "dots are left to the kernel", arg0: "../bin/sh", path: "-", cwd: "/srv", want: "../bin/sh"},
		{name: "absolute and missing", arg0: "/nope", path: path, errno: unix.ENOENT, text: `exec: "/nope": stat /nope: no such file or directory`},
		{name: "relative and missing", arg0: "./nope", path: path, cwd: "/srv", errno: unix.ENOENT, text: `exec: "./nope": stat ./nope: no such file or directory`},
		{name: "below a file", arg0: "/etc/passwd/x", path: path, errno: unix.ENOTDIR, text: `exec: "/etc/passwd/x": stat /etc/passwd/x: not a directory`},
		{name: "directory", arg0: "/etc", path: path, errno: unix.EACCES, text: `exec: "/etc": permission denied: is a directory`},
		{name: "device", arg0: "/dev/null", path: path, errno: unix.EACCES, text: `exec: "/dev/null": permission denied: is not a regular file`},
		{name: "loop", arg0: "/loop/self", path: path, errno: unix.ELOOP},
		{name: "long component", arg0: "/long/component", path: path, errno: unix.ENAMETOOLONG},

		{name: "root may not without an x bit", arg0: "/bin/plain", path: path, user: root, errno: unix.EACCES, text: `exec: "/bin/plain": permission denied`},
		{name: "root may not without any bit", arg0: "/zero", path: path, user: root, errno: unix.EACCES},
		{name: "root may with somebody else's x bit", arg0: "/owned", path: path, user: root, want: "/owned"},
		{name: "uid 0 without the capability is nobody special", arg0: "/owned", path: path, errno: unix.EACCES},
		{name: "owner", arg0: "/owned", path: path, user: alice, want: "/owned"},
		{name: "supplementary group", arg0: "/group", path: path, user: alice, want: "/group"},
		{name: "primary group", arg0: "/group", path: path, user: User{UID: 5, GID: 50}, want: "/group"},
		{name: "others", arg0: "/other", path: path, user: alice, want: "/other"},
		{name: "the owner's bits alone count for the owner", arg0: "/not-owner", path: path, user: alice, errno: unix.EACCES},
		{name: "the group's bits alone count for the group", arg0: "/not-group", path: path, user: alice, errno: unix.EACCES},
		{name: "an access control list is left to the kernel", arg0: "/acl", path: path, user: alice, want: "/acl"},
		{name: "but not without any x bit", arg0: "/acl-none", path: path, user: alice, errno: unix.EACCES},
		{name: "noexec mount", arg0: "/noexec/app", path: path, user: root, errno: unix.EACCES, text: `exec: "/noexec/app": permission denied: is on a mount with noexec`},

		{name: "empty", arg0: "", path: path, errno: unix.ENOENT, text: `exec: "": args[0] is empty: no such file or directory`},
		{name: "NUL", arg0: "a\x00b", path: path, errno: unix.EINVAL, text: `exec: "a\x00b": args[0] contains a NUL: invalid argument`},
		{name: "huge name", arg0: huge, path: path, errno: unix.ENAMETOOLONG},
		{name: "huge absolute name", arg0: "/" + huge, path: path, errno: unix.ENAMETOOLONG},
		{name: "huge relative name", arg0: "./" + huge, path: path, errno: unix.ENAMETOOLONG},
		{name: "name of 256 bytes", arg0: strings.Repeat("é", 128), path: path, errno: unix.ENAMETOOLONG},
		{name: "huge element is passed over", arg0: "sh", path: "/" + huge + ":/bin", want: "/bin/sh"},
		{name: "line break", arg0: "/a\nb", path: path, errno: unix.ENOENT, text: `exec: "/a\nb": stat /a\nb: no such file or directory`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cwd := tt.cwd
			if cwd == "" {
				cwd = "/"
			}
			got, err := Lookup(files, cwd, tt.arg0, tt.path, tt.path != "-", tt.user)
			if got != tt.want {
				t.Errorf("Lookup = %.100q; want %q", got, tt.want)
			}
			if tt.errno == 0 {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			checkText(t, err, tt.errno, tt.text)
			var le *LookupError
			if !errors.As(err, &le) || le.Command != tt.arg0 {
				t.Errorf("error %#v does not name the command", err)
			}
		})
	}
}

func checkText(t *testing.T, err error, errno unix.Errno, text string) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Fatalf("error %v; want %v", err, errno)
	}
	if got := err.Error(); text != "" && got != text {
		t.Errorf("error\n got %s\nwant %s", got, text)
	}
	if errors.Is(err, fs.ErrNotExist) != (errno == unix.ENOENT) || errors.Is(err, fs.ErrPermission) != (errno == unix.EACCES) {
		t.Errorf("%v answers errors.Is wrongly", err)
	}
	for _, s := range mustNotSay[errno] {
		if strings.Contains(err.Error(), s) {
			t.Errorf("error for %v says %q: %v", errno, s, err)
		}
	}
	if n := len(err.Error()); n > 2000 || strings.Contains(err.Error(), "\n") {
		t.Errorf("error of %d bytes: %.300s", n, err)
	}
}

func TestInCwdDoesNotClean(t *testing.T) {
	for _, tt := range []struct{ cwd, path, want string }{
		{"/", "a", "/a"}, {"", "a", "/a"}, {"/srv", "../a", "/srv/../a"}, {"/srv/", ".//./a", "/srv/a"}, {"/srv", "/a", "/a"},
	} {
		if got := InCwd(tt.cwd, tt.path); got != tt.want {
			t.Errorf("InCwd(%q, %q) = %q; want %q", tt.cwd, tt.path, got, tt.want)
		}
	}
}
