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
}

// Parse reads the lines of a file: a subset of TOML with comments, strings and
// arrays of strings on one line. capBit gives the number of a capability. An
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
	return fmt.Errorf("unknown key")
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
