package pathsafe

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sysctl is a parsed key of the OCI field linux.sysctl that belongs to a
// namespace. The zero Sysctl is refused by every function.
type Sysctl struct {
	key    string
	path   Rel
	nstype int
}

// Key returns the key as it was given to ParseSysctl.
func (s Sysctl) Key() string { return s.key }

// Path returns the file's path below the root of a procfs: "sys/net/...".
func (s Sysctl) Path() Rel { return s.path }

// Namespace returns the CLONE_NEW flag of the namespace that holds the value.
// The container must have one of its own, or the host's value would be changed.
func (s Sysctl) Namespace() int { return s.nstype }

// ipcSysctls are the values of an IPC namespace outside fs.mqueue: ipc_sysctls
// in ipc/ipc_sysctl.c.
var ipcSysctls = []string{
	"auto_msgmni", "msg_next_id", "msgmax", "msgmnb", "msgmni", "sem",
	"sem_next_id", "shm_next_id", "shm_rmid_forced", "shmall", "shmmax", "shmmni",
}

// maxSysctlValue is what a procfs handler takes in one write: less than a page.
const maxSysctlValue = 4095

// ParseSysctl parses a key such as net.ipv4.ip_forward. Keys of values that
// belong to no namespace are refused: they would change the host.
//
// As in sysctl(8) the first separator decides: after a dot, dots separate and a
// slash stands for a dot in a name (net.ipv4.conf.eth0/1.rp_filter); after a
// slash it is the other way round. Components are of [a-z0-9_-], and of dots
// where they stand for themselves, but never "." or "..".
func ParseSysctl(key string) (Sysctl, error) {
	fail := func(why string) (Sysctl, error) {
		return Sysctl{}, &ParseError{What: "sysctl key", Input: key, Why: why}
	}
	i := strings.IndexAny(key, "./")
	if i < 0 {
		return fail("no separator")
	}
	for _, b := range []byte(key) {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && strings.IndexByte("_-./", b) < 0 {
			return fail("holds a character other than a-z, 0-9, _, -, . and /")
		}
	}
	path := key
	if key[i] == '.' {
		path = strings.Map(func(r rune) rune {
			switch r {
			case '.':
				return '/'
			case '/':
				return '.'
			}
			return r
		}, key)
	}
	nstype := sysctlNamespace(path)
	if nstype == 0 {
		return fail("not a value of a namespace")
	}
	rel, err := ParseRel("sys/" + path)
	if err != nil {
		return fail(err.(*ParseError).Why)
	}
	return Sysctl{key: key, path: rel, nstype: nstype}, nil
}

// sysctlNamespace returns the CLONE_NEW flag for a path below /proc/sys, or 0.
// kernel/hostname is refused on purpose: the OCI field hostname sets it.
func sysctlNamespace(path string) int {
	first, rest, _ := strings.Cut(path, "/")
	switch first {
	case "net":
		return unix.CLONE_NEWNET
	case "user":
		return unix.CLONE_NEWUSER
	case "fs":
		if strings.HasPrefix(rest, "mqueue/") {
			return unix.CLONE_NEWIPC
		}
	case "kernel":
		if rest == "domainname" {
			return unix.CLONE_NEWUTS
		}
		if slices.Contains(ipcSysctls, rest) {
			return unix.CLONE_NEWIPC
		}
	}
	return 0
}

// CheckSysctlValue refuses a value that holds a NUL byte or a newline, which
// could end the value early, or that has more than 4095 bytes.
func CheckSysctlValue(val string) error {
	switch {
	case len(val) > maxSysctlValue:
		return &ParseError{What: "sysctl value", Input: val, Why: "longer than 4095 bytes"}
	case strings.ContainsAny(val, "\x00\n"):
		return &ParseError{What: "sysctl value", Input: val, Why: "holds a NUL byte or a newline"}
	}
	return nil
}

// WriteSysctl sets a value in the namespaces of the calling thread, which is
// locked and has joined them. It is one write(2), then the value is read back: a
// difference is ErrMismatch. A file that cannot be read is not compared. p must
// have been opened without subset.
func (p *Proc) WriteSysctl(key, val string) error {
	s, err := ParseSysctl(key)
	if err != nil {
		return err
	}
	if err := CheckSysctlValue(val); err != nil {
		return err
	}
	f, err := p.openProc(s.path.String(), unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write([]byte(val)); err != nil {
		return err
	}
	r, err := p.openProc(s.path.String(), unix.O_RDONLY)
	if err != nil {
		if e, ok := err.(*OpError); ok && e.Errno == unix.EACCES {
			return nil // write-only, such as net.ipv4.route.flush
		}
		return err
	}
	defer r.Close()
	got, err := r.readAll(1 << 20)
	if err != nil {
		return err
	}
	if !sameSysctl(s.path.String(), val, string(got)) {
		e := p.refuse(s.path.String(), ErrMismatch, "")
		e.detail = "wrote " + strconv.Quote(clip(val)) + ", reads " + strconv.Quote(clip(string(got)))
		return e
	}
	return nil
}

// sameSysctl compares what was written with what is read: the kernel separates
// fields by tabs and prints numbers its own way. Times in milliseconds are kept
// in ticks, of 10 ms at most.
func sameSysctl(path, wrote, read string) bool {
	var slack int64
	if strings.HasSuffix(path, "_ms") {
		slack = 10
	}
	a, b := strings.Fields(wrote), strings.Fields(read)
	if len(a) != len(b) {
		// A vector may be written in part: the first values are set.
		if len(a) > len(b) || len(a) == 0 {
			return len(a) == 0 && len(b) == 0
		}
		b = b[:len(a)]
	}
	for i := range a {
		if a[i] == b[i] {
			continue
		}
		x, err1 := strconv.ParseInt(a[i], 0, 64)
		y, err2 := strconv.ParseInt(b[i], 0, 64)
		if err1 == nil && err2 == nil && max(x-y, y-x) <= slack {
			continue
		}
		if !sameRanges(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameRanges compares lists such as ip_local_reserved_ports, which reads back
// with neighbours joined: 1,2,3 as 1-3.
func sameRanges(a, b string) bool {
	x, ok1 := expandRanges(a)
	y, ok2 := expandRanges(b)
	return ok1 && ok2 && slices.Equal(x, y)
}

func expandRanges(s string) ([]uint64, bool) {
	var out []uint64
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := strconv.ParseUint(lo, 10, 32)
		b, err2 := strconv.ParseUint(hi, 10, 32)
		if err1 != nil || err2 != nil || b < a || b-a > 1<<16 || len(out) > 1<<17 {
			return nil, false
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return strings.TrimSuffix(s, "\n")
}
