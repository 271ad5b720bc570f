package pathsafe

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ownProc is a procfs that is kept for reopen. It is made when first needed and
// lives as long as the process.
var ownProc struct {
	mu sync.Mutex
	p  *Proc // guarded by mu until set, then constant
}

// reopen opens for reading the file that the O_PATH descriptor raw names. There
// is no system call for it before O_EMPTYPATH; the way is the magic link of the
// descriptor in a procfs. That is safe here and nowhere else: the procfs is our
// own and mounted nowhere, so no one can put another link in that place, and
// the link leads to the inode itself, not to a path. raw is held by the caller.
func reopen(raw int) (int, error) {
	ownProc.mu.Lock()
	p := ownProc.p
	if p == nil {
		var err error
		if p, err = OpenProc(true); err != nil {
			ownProc.mu.Unlock()
			return -1, err
		}
		p.fd.Keep()
		ownProc.p = p
	}
	ownProc.mu.Unlock()
	// "self" would be wrong on a thread that has a descriptor table of its own.
	f, err := p.magic("thread-self", "fd/"+strconv.Itoa(raw), unix.O_RDONLY)
	if err != nil {
		return -1, err
	}
	return f.Disown(), nil
}
