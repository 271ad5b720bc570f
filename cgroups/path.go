package cgroups

import (
	"fmt"
	"strings"

	"github.com/ibex-run/ibex/pathsafe"
)

// Path is where a container's cgroup is, the same below every hierarchy.
type Path struct {
	rel  pathsafe.Rel
	text string
	unit Unit
}

// Unit is a path in systemd's words.
type Unit struct {
	Slice string // such as "kubepods-burstable.slice"
	Name  string // such as "cri-containerd-4f1c.scope"
}

// ParsePath reads linux.cgroupsPath of the container called id.
//
//	/a/b and a/b           below the root of each hierarchy
//	"" (empty)             /ibex/id
//	slice:prefix:name      systemd's unit prefix-name.scope in that slice
//
// "If the value is relative, the runtime MAY interpret it relative to a
// runtime-determined location in the cgroups hierarchy." - runtime-spec,
// config-linux.md. That location is the root, so a relative path means the same
// in the shim, in `delete` and after a restart, whatever cgroup those run in.
//
// The shape of the path decides, not an option: the CRI plugin writes the
// systemd form exactly if the kubelet runs pods in slices.
func ParsePath(cgroupsPath, id string) (Path, error) {
	p := Path{text: cgroupsPath}
	rel := cgroupsPath
	switch {
	case cgroupsPath == "":
		if _, err := pathsafe.ParseName(id); err != nil {
			return Path{}, pathError(cgroupsPath, "the container's ID is no name: "+err.Error())
		}
		rel = "/ibex/" + id
		p.text = rel
	case !strings.HasPrefix(cgroupsPath, "/") && strings.Contains(cgroupsPath, ":"):
		var err error
		if p.unit, err = parseUnit(cgroupsPath); err != nil {
			return Path{}, err
		}
		if rel, err = p.unit.path(); err != nil {
			return Path{}, err
		}
	}
	parts := strings.FieldsFunc(rel, func(r rune) bool { return r == '/' })
	if len(parts) == 0 {
		return Path{}, pathError(cgroupsPath, "is the root of the hierarchy")
	}
	for _, part := range parts {
		if strings.Count(part, ":") > 1 {
			return Path{}, pathError(cgroupsPath, "mixes a path with systemd's slice:prefix:name")
		}
	}
	var err error
	if p.rel, err = pathsafe.ParseRel(strings.Join(parts, "/")); err != nil {
		return Path{}, pathError(cgroupsPath, err.Error())
	}
	return p, nil
}

func pathError(path, text string) error {
	return fmt.Errorf("linux.cgroupsPath %.200q: %s: %w", path, text, ErrInvalid)
}

// Rel is the path below a hierarchy. For a unit it is the directory that systemd
// makes.
func (p Path) Rel() pathsafe.Rel { return p.rel }

// String gives the path as it was asked for.
func (p Path) String() string { return p.text }

// Unit gives the path in systemd's words; ok is false for any other path.
func (p Path) Unit() (u Unit, ok bool) { return p.unit, p.unit.Name != "" }

// parseUnit reads slice:prefix:name. An empty slice is system.slice, where
// systemd puts what asks for none. A name that ends in .slice is a unit itself,
// without prefix and .scope.
func parseUnit(text string) (Unit, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Unit{}, pathError(text, "is neither a path nor slice:prefix:name")
	}
	u := Unit{Slice: parts[0], Name: parts[2]}
	if u.Slice == "" {
		u.Slice = "system.slice"
	}
	if u.Name == "" {
		return Unit{}, pathError(text, "has no name")
	}
	if !strings.HasSuffix(u.Name, ".slice") {
		if parts[1] != "" {
			u.Name = parts[1] + "-" + u.Name
		}
		u.Name += ".scope"
	}
	for _, s := range []string{u.Slice, u.Name} {
		if len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(unitChars, r) }) {
			return Unit{}, pathError(text, "has characters that no systemd unit may have")
		}
	}
	return u, nil
}

// unitChars are the characters of a unit's name - systemd.unit(5).
const unitChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.\\-@"

// path expands the slice: "The dash '-' is the hierarchy separator" -
// systemd.slice(5). a-b.slice is the directory a.slice/a-b.slice, and -.slice
// is the root.
func (u Unit) path() (string, error) {
	dir, err := expandSlice(u.Slice)
	if err != nil {
		return "", err
	}
	return dir + "/" + u.Name, nil
}

func expandSlice(slice string) (string, error) {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" {
		return "", pathError(slice, "is no slice")
	}
	if name == "-" {
		return "", nil
	}
	var dir, prefix strings.Builder
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", pathError(slice, "has an empty part")
		}
		if prefix.Len() > 0 {
			prefix.WriteByte('-')
		}
		prefix.WriteString(part)
		dir.WriteString("/" + prefix.String() + ".slice")
	}
	return dir.String(), nil
}
