//go:build !cgo

package plan

import "os"

// leftOut is all of the address space but the program's text, in whole pages.
func leftOut(uintptr) [2]span {
	from, to := textBounds()
	page := uintptr(os.Getpagesize())
	return [...]span{{0, from &^ (page - 1)}, {(to + page - 1) &^ (page - 1), userEnd}}
}

// userEnd is above all that user space maps without asking for five-level page
// tables.
const userEnd = 1 << 48

// textBounds gives the runtime's marks for the program's text.
func textBounds() (from, to uintptr)
