package shim

import (
	"runtime/debug"
	"sync"
	"time"
)

// quiet is how long nothing must have happened before memory is given back.
const quiet = 5 * time.Second

// memory gives the heap that a burst of work has left behind back to the
// kernel, once after each burst. A pod's shim is idle most of its life, and
// there are hundreds on a node. Reading statistics is no work in this sense.
type memory struct {
	mu    sync.Mutex
	timer *time.Timer
}

func newMemory() *memory { return &memory{} }

// touch says that something happened.
func (m *memory) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer == nil {
		m.timer = time.AfterFunc(quiet, debug.FreeOSMemory)
		return
	}
	m.timer.Reset(quiet)
}
