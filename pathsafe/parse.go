package pathsafe

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/linux"
)

// Limits on paths. The kernel's own are PATH_MAX 4096 with the NUL and NAME_MAX
// 255; the number of components has none there.
const (
	maxPath       = 4095
	maxName       = 255
	maxComponents = 128
)

// Rel is a relative path in a host tree: one or more components separated by
// single slashes, none of them "." or "..". The zero Rel is refused by every
// function.
//
// ".." is refused here, not left to RESOLVE_BENEATH, for two reasons: openat2
// accepts "a/..", and a lookup that walks ".." may fail with EAGAIN whenever
// anything anywhere on the host is renamed.
type Rel struct{ c linux.CString }

// Name is a Rel of exactly one component.
type Name struct{ c linux.CString }

// InRoot is a path in a container's root filesystem as a spec or an image gives
// it. It may hold "..", links may be followed: the kernel scopes it to the root.
type InRoot struct{ c linux.CString } // no leading slash; "." for the root

// String returns the path as it was given to ParseRel.
func (r Rel) String() string { return r.c.String() }

// Split returns the components.
func (r Rel) split() []string { return strings.Split(r.c.String(), "/") }

// String returns the name as it was given to ParseName.
func (n Name) String() string { return n.c.String() }

// Rel returns the name as a path of one component.
func (n Name) Rel() Rel { return Rel(n) }

// String returns the path with a leading slash.
func (p InRoot) String() string {
	if p.c.String() == "." {
		return "/"
	}
	return "/" + p.c.String()
}

// ParseRel parses a path of a host tree. Refused are "", a leading, trailing or
// double slash, "." and ".." components, bytes below 0x20 and 0x7f, more than
// 4095 bytes, 255 bytes in a component or 128 components.
func ParseRel(s string) (Rel, error) {
	if why := checkRel(s); why != "" {
		return Rel{}, &ParseError{What: "path", Input: s, Why: why}
	}
	c, _ := linux.NewCString(s) // checkRel refused NUL
	return Rel{c}, nil
}

// ParseName parses a path of one component; see ParseRel.
func ParseName(s string) (Name, error) {
	why := checkRel(s)
	if why == "" && strings.IndexByte(s, '/') >= 0 {
		why = "more than one component"
	}
	if why != "" {
		return Name{}, &ParseError{What: "name", Input: s, Why: why}
	}
	c, _ := linux.NewCString(s)
	return Name{c}, nil
}

// MustName is ParseName for constants of the program; it panics on an error.
func MustName(s string) Name {
	n, err := ParseName(s)
	if err != nil {
		panic(err)
	}
	return n
}

// MustRel is ParseRel for constants of the program; it panics on an error.
func MustRel(s string) Rel {
	r, err := ParseRel(s)
	if err != nil {
		panic(err)
	}
	return r
}

// ParseInRoot parses a path of a root filesystem. Leading slashes mean nothing,
// as the path is always relative to the root, and "" is the root. Refused are
// NUL bytes and more than 4095 bytes.
func ParseInRoot(s string) (InRoot, error) {
	switch {
	case len(s) > maxPath:
		return InRoot{}, &ParseError{What: "path in root", Input: s, Why: "longer than 4095 bytes"}
	case strings.IndexByte(s, 0) >= 0:
		return InRoot{}, &ParseError{What: "path in root", Input: s, Why: "holds a NUL byte"}
	}
	s = strings.TrimLeft(s, "/")
	if s == "" {
		s = "."
	}
	c, _ := linux.NewCString(s)
	return InRoot{c}, nil
}

// checkRel returns why s is no Rel, or "".
func checkRel(s string) string {
	switch {
	case s == "":
		return "empty"
	case len(s) > maxPath:
		return "longer than 4095 bytes"
	}
	components, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && s[i] != '/' {
			if s[i] < 0x20 || s[i] == 0x7f {
				return "holds a control character"
			}
			continue
		}
		switch comp := s[start:i]; {
		case comp == "":
			return "empty component"
		case comp == "." || comp == "..":
			return "component " + comp
		case len(comp) > maxName:
			return "component longer than 255 bytes"
		}
		components++
		start = i + 1
	}
	if components > maxComponents {
		return "more than 128 components"
	}
	return ""
}

// absPath parses an absolute host path: "/" or a slash and a Rel.
func absPath(what, s string) (linux.CString, error) {
	if s != "/" {
		why := "not absolute"
		if strings.HasPrefix(s, "/") {
			why = checkRel(s[1:])
		}
		if why != "" {
			return "", &ParseError{What: what, Input: s, Why: why}
		}
	}
	c, _ := linux.NewCString(s)
	return c, nil
}

// kernelName makes a Name of a directory entry that getdents64 returned. It is
// laxer than ParseName: a cgroup named by a tenant may hold control characters
// and must be removable all the same. The kernel gives no slash and no NUL.
func kernelName(s string) (Name, bool) {
	if s == "" || s == "." || s == ".." || len(s) > maxName || strings.IndexByte(s, '/') >= 0 {
		return Name{}, false
	}
	c, ok := linux.NewCString(s)
	return Name{c}, ok
}

// valid refuses zero values, which no parser returns.
func valid(c linux.CString) unix.Errno {
	if !c.Valid() {
		return unix.EINVAL
	}
	return 0
}
