package fd

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// tracing is off outside tests and costs one load of it per open and close.
var tracing atomic.Bool

var traced struct {
	mu   sync.Mutex
	open map[*FD][]uintptr // guarded by mu; where each FD was made
}

// StartTrace begins to record where every FD is made. It is meant for TestMain;
// recording keeps every open FD alive.
func StartTrace() {
	traced.mu.Lock()
	traced.open = make(map[*FD][]uintptr)
	traced.mu.Unlock()
	tracing.Store(true)
}

// Leaked returns, for each FD made since StartTrace and neither closed nor
// disowned, its number and the calls that made it.
func Leaked() []string {
	traced.mu.Lock()
	defer traced.mu.Unlock()
	var out []string
	for f, pcs := range traced.open {
		var b strings.Builder
		b.WriteString("descriptor " + strconv.Itoa(f.raw) + " made by")
		frames := runtime.CallersFrames(pcs)
		for {
			fr, more := frames.Next()
			b.WriteString("\n\t" + fr.Function + " " + fr.File + ":" + strconv.Itoa(fr.Line))
			if !more {
				break
			}
		}
		out = append(out, b.String())
	}
	return out
}

func traceOpen(f *FD) {
	if !tracing.Load() {
		return
	}
	pcs := make([]uintptr, 12)
	pcs = pcs[:runtime.Callers(3, pcs)]
	traced.mu.Lock()
	traced.open[f] = pcs
	traced.mu.Unlock()
}

func traceClose(f *FD) {
	if !tracing.Load() {
		return
	}
	traced.mu.Lock()
	delete(traced.open, f)
	traced.mu.Unlock()
}

// Keep says that f is to live as long as the process, so that it is not taken
// for a leak.
func (f *FD) Keep() { traceClose(f) }
