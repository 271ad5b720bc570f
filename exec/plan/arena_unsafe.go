package plan

import "unsafe"

// arenaAddr returns the address of the arena, which is never empty.
func arenaAddr(a []uint64) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a))) }

// arenaBytes returns the arena as bytes.
func arenaBytes(a []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(a))), len(a)*8)
}
