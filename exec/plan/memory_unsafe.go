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
// stack. It lies outside the Go heap, because nothing else that can be written is copied to the child
// (see keepOut).
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

// span is a part of the address space.
type span struct{ from, to uintptr }

// keepOut has the kernel leave all memory out of the children but the program's
// text and p's own. The child does not need more, copying page tables and, later,
// the pages that we write to costs half of a fork, and other processes'
// environments are in the heap. It is called for each fork, under
// syscall.ForkLock: the runtime maps memory as it grows, and other plans come and
// go. Mappings that appear between this and the fork are copied, which does no
// harm.
//
// MADV_DONTFORK: madvise(2), Linux 2.6.16.
func keepOut(p *Plan) {
	for _, s := range leftOut(uintptr(unsafe.Pointer(p))) {
		advise(s, unix.MADV_DONTFORK)
	}
	advise(span{uintptr(p.mem.addr), uintptr(p.mem.addr) + p.mem.size}, unix.MADV_DOFORK)
}

// advise applies to what is mapped within s. ENOMEM says that there are holes,
// and the rest is done; other errors leave what should be out in the child.
func advise(s span, advice uintptr) {
	unix.RawSyscall(unix.SYS_MADVISE, s.from, s.to-s.from, advice) //nolint:errcheck // then it is copied
}
