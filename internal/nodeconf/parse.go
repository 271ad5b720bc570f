package nodeconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Config is a parsed file. The zero value controls nothing.
type Config struct {
	// ControlledCaps, if not nil, is what a process in a controlled container may
	// hold at most, one bit a capability.
	ControlledCaps *uint64
	// ControlAll extends the control from containers with a user namespace of
	// their own to every container.
	ControlAll bool
	// These are runtime options under their own names, for containers whose
	// caller gives none or the zero value.
	Options
	// RequireSealed refuses to start a shim from the installed file itself.
	RequireSealed bool
}

// Options are the runtime options that a node may set for all containers.
type Options struct {
	NoNewKeyring bool
	ShimCgroup   string
	IoUid        uint32
	IoGid        uint32
	ExecTreeKill bool
	LogOverflow  string // empty, OverflowBlock or OverflowDrop
	LogSpool     int64  // bytes; 0 is the default
}

// Overflow values: what becomes of output that its reader does not take.
const (
	OverflowBlock = "block" // the container waits
	OverflowDrop  = "drop"  // it is spooled, and dropped when the spool is full
)

// Bounds of LogSpool in bytes.
const (
	DefaultSpool = 1 << 20
	MaxSpool     = 256 << 20
)

// CheckOverflow refuses a value that LogOverflow cannot have.
func CheckOverflow(s string) error {
	if s != "" && s != OverflowBlock && s != OverflowDrop {
		return fmt.Errorf("%q: want %q or %q", s, OverflowBlock, OverflowDrop)
	}
	return nil
}

// CheckSpool refuses a size that LogSpool cannot have.
func CheckSpool(n int64) error {
	if n < 0 || n > MaxSpool {
		return fmt.Errorf("%d: want at most %d bytes", n, MaxSpool)
	}
	return nil
}

// Parse reads the lines of a file: a subset of TOML with comments, strings,
// integers, booleans and arrays of strings on one line. capBit gives the number of a capability. An
// unknown key, or capability, is an error that names it.
func Parse(text string, capBit CapBit) (c Config, err error) {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, val, ok := strings.Cut(line, "=")
		key, val = strings.TrimSpace(key), strings.TrimSpace(val)
		if !ok {
			return Config{}, fmt.Errorf("line %d: %q: want KEY = VALUE", i+1, line)
		}
		if err := c.set(key, val, capBit); err != nil {
			return Config{}, fmt.Errorf("line %d: %s: %w", i+1, key, err)
		}
	}
	return c, nil
}

// CapBit gives the number of the capability of a name.
type CapBit func(name string) (bit int, ok bool)

func (c *Config) set(key, val string, capBit CapBit) error {
	switch key {
	case "controlled_userns_caps":
		mask, err := parseCaps(val, capBit)
		c.ControlledCaps = &mask
		return err
	case "controlled_containers":
		s, err := parseString(val)
		if err == nil && s != "userns" && s != "all" {
			err = fmt.Errorf("%q: want \"userns\" or \"all\"", s)
		}
		c.ControlAll = s == "all"
		return err
	}
	return c.setOption(key, val)
}

func (c *Config) setOption(key, val string) (err error) {
	switch key {
	case "NoNewKeyring":
		c.NoNewKeyring, err = parseBool(val)
	case "ExecTreeKill":
		c.ExecTreeKill, err = parseBool(val)
	case "allow_unsealed":
		var allow bool
		allow, err = parseBool(val)
		c.RequireSealed = !allow
	case "ShimCgroup":
		c.ShimCgroup, err = parseString(val)
	case "LogOverflow":
		if c.LogOverflow, err = parseString(val); err == nil {
			err = CheckOverflow(c.LogOverflow)
		}
	case "LogSpool":
		if c.LogSpool, err = parseInt(val); err == nil {
			err = CheckSpool(c.LogSpool)
		}
	case "IoUid":
		c.IoUid, err = parseID(val)
	case "IoGid":
		c.IoGid, err = parseID(val)
	case "NoPivotRoot", "SystemdCgroup", "BinaryName", "Root", "CriuPath", "CriuImagePath", "CriuWorkPath", "TaskApiAddress", "TaskApiVersion":
		err = fmt.Errorf("an option of containerd's request that means nothing for a node")
	default:
		err = fmt.Errorf("unknown key")
	}
	return err
}

// bare takes a value without quotes, up to a comment.
func bare(val string) string {
	val, _, _ = strings.Cut(val, "#")
	return strings.TrimSpace(val)
}

func parseBool(val string) (bool, error) {
	switch v := bare(val); v {
	case "true", "false":
		return v == "true", nil
	default:
		return false, fmt.Errorf("%s: want true or false", v)
	}
}

func parseInt(val string) (int64, error) {
	n, err := strconv.ParseInt(bare(val), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: want a number", bare(val))
	}
	return n, nil
}

func parseID(val string) (uint32, error) {
	n, err := strconv.ParseUint(bare(val), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: want a number of 32 bits", bare(val))
	}
	return uint32(n), nil
}

// parseCaps takes a mask in the form of the kernel's bitmaps, 32 bits a group
// and the highest first ("1f,ffffffff"), or an array of names.
func parseCaps(val string, capBit CapBit) (mask uint64, err error) {
	if strings.HasPrefix(val, "[") {
		names, err := parseArray(val)
		for _, n := range names {
			bit, ok := capBit(n)
			if !ok {
				return 0, fmt.Errorf("unknown capability %q", n)
			}
			mask |= 1 << bit
		}
		return mask, err
	}
	s, err := parseString(val)
	if err != nil {
		return 0, err
	}
	groups := strings.Split(s, ",")
	if len(groups) > 2 {
		return 0, fmt.Errorf("%q: more than 64 bits", s)
	}
	for i, g := range groups {
		n, err := strconv.ParseUint(g, 16, 32)
		if err != nil || i > 0 && len(g) != 8 {
			return 0, fmt.Errorf("%q: want hexadecimal groups of 32 bits, such as \"1f,ffffffff\"", s)
		}
		mask = mask<<32 | n
	}
	return mask, nil
}

func parseString(val string) (string, error) {
	s, rest, err := quoted(val)
	if err == nil && !end(rest) {
		err = fmt.Errorf("%q follows the value", rest)
	}
	return s, err
}

// quoted takes a string off the front. Escapes are not needed here.
func quoted(val string) (s, rest string, err error) {
	if len(val) > 1 && (val[0] == '"' || val[0] == '\'') {
		if i := strings.IndexByte(val[1:], val[0]); i >= 0 && !strings.Contains(val[1:1+i], `\`) {
			return val[1 : 1+i], strings.TrimSpace(val[2+i:]), nil
		}
	}
	return "", "", fmt.Errorf("%s: want a string in quotes", val)
}

func parseArray(val string) (out []string, err error) {
	rest := strings.TrimSpace(val[1:])
	for !strings.HasPrefix(rest, "]") {
		var s string
		if s, rest, err = quoted(rest); err != nil {
			return nil, err
		}
		out = append(out, s)
		if strings.HasPrefix(rest, ",") {
			rest = strings.TrimSpace(rest[1:])
		} else if !strings.HasPrefix(rest, "]") {
			return nil, fmt.Errorf("array: want , or ] before %q", rest)
		}
	}
	if !end(rest[1:]) {
		return nil, fmt.Errorf("%q follows the array", rest[1:])
	}
	return out, nil
}

// end reports whether nothing but a comment is left of a line.
func end(rest string) bool {
	rest = strings.TrimSpace(rest)
	return rest == "" || rest[0] == '#'
}
