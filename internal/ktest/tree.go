package ktest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Tree makes files below dir from a description, one entry a line:
//
//	dir/                  a directory
//	dir/file              an empty file
//	dir/file = text       a file with that text (\n is a newline)
//	dir/link -> target    a symbolic link
//	dir/hard => dir/file  a hard link
//	dir/fifo |            a FIFO
//	dir/null c 1 3        a character device; b for a block device
//
// A mode may come first: "0640 file = text". Missing parents are made as
// directories of mode 0755. Empty lines are skipped. Modes are not subject to
// the umask.
func Tree(t testing.TB, dir, description string) {
	t.Helper()
	for line := range strings.Lines(description) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := treeEntry(dir, line); err != nil {
			t.Fatalf("tree entry %q: %v", line, err)
		}
	}
}

func treeEntry(dir, line string) error {
	mode := os.FileMode(0)
	if first, rest, ok := strings.Cut(line, " "); ok && first[0] == '0' {
		m, err := strconv.ParseUint(first, 8, 12)
		if err != nil {
			return err
		}
		mode, line = os.FileMode(m), strings.TrimSpace(rest)
	}
	name, kind, arg := splitEntry(line)
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var err error
	switch kind {
	case "->":
		return os.Symlink(arg, path)
	case "=>":
		return os.Link(filepath.Join(dir, arg), path)
	case "|":
		err = unix.Mkfifo(path, 0o600)
	case "c", "b":
		err = treeDevice(path, kind, arg)
	default:
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
			break
		}
		text := strings.ReplaceAll(arg, `\n`, "\n")
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil || mode == 0 {
		return err
	}
	return unix.Chmod(path, uint32(mode))
}

// splitEntry cuts a line in its name, its kind ("" for a plain file or
// directory) and what follows.
func splitEntry(line string) (name, kind, arg string) {
	for _, k := range []string{" -> ", " => ", " = "} {
		if n, a, ok := strings.Cut(line, k); ok {
			return n, strings.TrimSpace(k), a
		}
	}
	if n, ok := strings.CutSuffix(line, " ="); ok {
		return n, "=", ""
	}
	f := strings.Fields(line)
	if len(f) > 1 {
		return f[0], f[1], strings.Join(f[2:], " ")
	}
	return line, "", ""
}

func treeDevice(path, kind, arg string) error {
	f := strings.Fields(arg)
	if len(f) != 2 {
		return strconv.ErrSyntax
	}
	major, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return err
	}
	minor, err := strconv.ParseUint(f[1], 10, 32)
	if err != nil {
		return err
	}
	mode := uint32(unix.S_IFCHR | 0o600)
	if kind == "b" {
		mode = unix.S_IFBLK | 0o600
	}
	return unix.Mknod(path, mode, int(unix.Mkdev(uint32(major), uint32(minor))))
}
