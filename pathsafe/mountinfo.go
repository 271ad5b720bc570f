package pathsafe

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountInfoEntry is one line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type MountInfoEntry struct {
	ID, Parent   uint64 // mount ids that may be reused, as STATX_MNT_ID gives
	Dev          uint64 // unix.Mkdev of the filesystem
	Root         string // directory of the filesystem that is mounted
	MountPoint   string
	Options      string // of the mount
	Optional     []string
	FSType       string
	Source       string
	SuperOptions string // of the filesystem; names the controllers of a v1 hierarchy
}

// maxMountInfo bounds what is read of mountinfo: about 100,000 mounts.
const maxMountInfo = 32 << 20

// MountInfo returns the mounts of the calling thread's mount namespace, in the
// kernel's order.
func MountInfo() ([]MountInfoEntry, error) {
	p, err := OpenProc(true)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	f, err := p.Self(MustRel("mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := f.readAll(maxMountInfo)
	if err != nil {
		return nil, err
	}
	return ParseMountInfo(string(text))
}

// ParseMountInfo parses the text of a mountinfo file. A line that it cannot
// read is an error that quotes it: guessing at mounts is how containers escape.
func ParseMountInfo(text string) ([]MountInfoEntry, error) {
	var out []MountInfoEntry
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m, why := parseMountInfoLine(line)
		if why != "" {
			return nil, &ParseError{What: "mountinfo line", Input: line, Why: why}
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMountInfoLine(line string) (m MountInfoEntry, why string) {
	f := strings.Split(line, " ")
	if len(f) < 10 {
		return m, "too few fields"
	}
	sep := 6
	for sep < len(f) && f[sep] != "-" {
		sep++
	}
	// A source of "" is printed as an empty field by some filesystems.
	if len(f) < sep+4 {
		return m, "no separator"
	}
	var err error
	if m.ID, err = strconv.ParseUint(f[0], 10, 64); err != nil {
		return m, "mount id"
	}
	if m.Parent, err = strconv.ParseUint(f[1], 10, 64); err != nil {
		return m, "parent id"
	}
	maj, min, _ := strings.Cut(f[2], ":")
	a, err1 := strconv.ParseUint(maj, 10, 32)
	b, err2 := strconv.ParseUint(min, 10, 32)
	if err1 != nil || err2 != nil {
		return m, "device"
	}
	m.Dev = unix.Mkdev(uint32(a), uint32(b))
	m.Root, m.MountPoint, m.Options = unescapeMount(f[3]), unescapeMount(f[4]), f[5]
	if sep > 6 {
		m.Optional = f[6:sep]
	}
	m.FSType, m.Source = unescapeMount(f[sep+1]), unescapeMount(f[sep+2])
	m.SuperOptions = strings.Join(f[sep+3:], " ")
	return m, ""
}

// unescapeMount undoes the octal escapes of space, tab, newline, backslash and
// "#". Anything else after a backslash stays as it is.
func unescapeMount(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
