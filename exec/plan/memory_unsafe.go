package plan

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stackSize is what the child runs on: runInChild and RawSyscall6 need less than
// one kilobyte, in builds without optimization, too.
const stackSize = 16 << 10

// memory is what the child reads, writes and runs on: the steps, the arena and a
// stack. It lies outside the Go heap, because the heap is not copied to the child
// (see keepHeapOut).
type memory struct {
	addr unsafe.Pointer
	size uintptr
}

// newMemory maps zeroed memory for steps, arena words and the stack.
func newMemory(steps, words int) (m memory, s []step, arena []uint64, err error) {
	stepBytes := uintptr(steps) * unsafe.Sizeof(step{})
	m.size = stepBytes + uintptr(words)*8 + stackSize
	page := uintptr(os.Getpagesize())
	m.size = (m.size + page - 1) &^ (page - 1)
	m.addr, err = unix.MmapPtr(-1, 0, nil, m.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return memory{}, nil, nil, os.NewSyscallError("mmap", err)
	}
	s = unsafe.Slice((*step)(m.addr), steps)
	arena = unsafe.Slice((*uint64)(unsafe.Add(m.addr, stepBytes)), words)
	return m, s, arena, nil
}

// stack gives the address and the size of the stack, which is at the end.
func (m memory) stack() (addr, size uint64) {
	return uint64(uintptr(m.addr) + m.size - stackSize), stackSize
}

// unmap gives the memory back; with it go the environment and all else that was
// in it.
func (m memory) unmap() {
	if m.addr != nil {
		unix.MunmapPtr(m.addr, m.size) //nolint:errcheck // our own mapping: nothing can be wrong
	}
}

// own ties m to p: to Close, and to the collection of a plan that nobody closed.
func (p *Plan) own(m memory) {
	p.mem = m
	p.cleanup = runtime.AddCleanup(p, memory.unmap, m)
}

// Close frees the memory of the plan, which is empty afterwards and cannot be
// forked. It is not needed for correctness, but what a plan holds may be large,
// and secret. Nobody may use the plan meanwhile.
func (p *Plan) Close() {
	p.cleanup.Stop()
	p.mem.unmap()
	p.mem, p.steps, p.arena = memory{}, nil, nil
	p.strip()
}

// heapArena is how much of the address space the Go runtime takes for its heap at
// once, aligned to itself (runtime.heapArenaBytes on 64-bit Linux). One follows
// another, as far as there is room; what is around p is taken for heap up to
// nearArenas away, far more than a shim ever needs.
const (
	heapArena  = 64 << 20
	nearArenas = 8
)

// keepHeapOut has the kernel leave the heap around p out of the child. The child
// does not need it, copying its page tables and, later, the pages that we write
// to costs a good part of a fork, and other processes' environments are in it. It
// is called for each fork: the runtime maps parts of the heap anew as it grows.
//
// MADV_DONTFORK: madvise(2), Linux 2.6.16.
func keepHeapOut(p *Plan) {
	heap := uintptr(unsafe.Pointer(p)) &^ (heapArena - 1)
	from, size := heap-nearArenas*heapArena, uintptr(2*nearArenas+1)*heapArena
	if at := uintptr(p.mem.addr); heap < nearArenas*heapArena || at-from < size {
		from, size = heap, heapArena // what the child needs is never left out
	}
	// ENOMEM says that a part is not mapped; the rest is done.
	unix.RawSyscall(unix.SYS_MADVISE, from, size, unix.MADV_DONTFORK) //nolint:errcheck // then it is copied
}
