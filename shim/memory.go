package shim

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// quiet is how long nothing must have happened before memory is given back.
	quiet = 5 * time.Second
	// startWork is how often something happens in a pod that starts and is left
	// alone.
	startWork = 10
)

// The first collection costs more than it finds in a shim that has just started
// its containers: half a megabyte for the collector's own lists, which stay
// (runtime.spanSet). So it comes late, and the later ones early: what execs leave
// behind is more than those lists. The least heap at which Go collects is 4 MiB
// at 100 (runtime, heapMinimum).
const (
	gcAtStart = 50
	gcLater   = 25
)

// tune sets what the server may cost while it idles. There is one for each pod
// of a node, and its live heap is far below Go's smallest collection threshold.
func tune() {
	debug.SetGCPercent(gcAtStart)
	// What the shim waits for, it waits for in the kernel, which takes no
	// processor. A second one would have every request wake another thread on
	// another CPU to look for work that is not there, which takes longer than most
	// requests do; and each costs a heap cache and threads.
	runtime.GOMAXPROCS(1)
}

// memory gives the heap that a burst of work has left behind back to the
// kernel, once after each burst. A pod's shim is idle most of its life, and
// there are hundreds on a node. Reading statistics is no work in this sense.
type memory struct {
	mu    sync.Mutex
	timer *time.Timer
	work  int // guarded by mu: up to startWork
}

func newMemory() *memory { return &memory{} }

// touch says that something happened.
func (m *memory) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.work < startWork {
		if m.work++; m.work == startWork {
			debug.SetGCPercent(gcLater)
		}
	}
	if m.timer == nil {
		m.timer = time.AfterFunc(quiet, debug.FreeOSMemory)
		return
	}
	m.timer.Reset(quiet)
}
