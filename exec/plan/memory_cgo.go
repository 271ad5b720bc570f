//go:build cgo

package plan

// heapArena is how much of the address space the Go runtime takes for its heap at
// once, aligned to itself (runtime.heapArenaBytes on 64-bit Linux). One follows
// another from a random address, as far as there is room; what is around an object
// is taken for heap up to nearArenas away.
const (
	heapArena  = 64 << 20
	nearArenas = 8
)

// leftOut is the Go heap around an object in it, and no more: in a program with
// cgo each thread has a restartable sequence, and the kernel kills a child that
// has not got the memory of it (kernel/rseq.c). This is for the race detector;
// what ships has no cgo.
func leftOut(object uintptr) [1]span {
	arena := object &^ (heapArena - 1)
	return [...]span{{arena - nearArenas*heapArena, arena + (nearArenas+1)*heapArena}}
}
