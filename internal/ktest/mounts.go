package ktest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is a line of mountinfo.
type Mount struct {
	ID, Parent   string
	Root         string   // what of the filesystem is mounted
	Point        string   // where
	Options      []string // of the mount
	Propagation  []string // optional fields: "shared:1", "master:2", ...
	Type, Source string
	SuperOptions string // of the filesystem
}

// Mounts lists the mounts that this process sees.
func Mounts() []Mount {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		panic(err)
	}
	return ParseMounts(string(text))
}

// MountsOf lists the mounts that another process sees.
func MountsOf(pid int) ([]Mount, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	return ParseMounts(string(text)), err
}

// unescape undoes the octal escapes of mountinfo, proc_pid_mountinfo(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// ParseMounts parses the text of a mountinfo file.
func ParseMounts(text string) []Mount {
	var ms []Mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			continue
		}
		m := Mount{
			ID: l[0], Parent: l[1], Root: unescape.Replace(l[3]), Point: unescape.Replace(l[4]),
			Options: strings.Split(l[5], ","), Propagation: l[6:],
			Type: r[0], Source: unescape.Replace(r[1]),
		}
		if len(r) > 2 {
			m.SuperOptions = r[2]
		}
		ms = append(ms, m)
	}
	return ms
}

// MountsBelow lists the mount points at or below dir.
func MountsBelow(dir string) []string {
	var points []string
	for _, m := range Mounts() {
		if m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
			points = append(points, m.Point)
		}
	}
	return points
}

// UnmountBelow detaches the mounts at and below dir, the last one first.
func UnmountBelow(dir string) error {
	return Poll(5*time.Second, func() error {
		points := MountsBelow(dir)
		slices.Reverse(points)
		var last error
		for _, p := range points {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
				last = fmt.Errorf("umount %s: %w", p, err)
			}
		}
		return last
	})
}
