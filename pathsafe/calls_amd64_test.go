package pathsafe

import "golang.org/x/sys/unix"

// openCalls are the ways to open a file other than openat2.
var openCalls = []int{unix.SYS_OPEN, unix.SYS_OPENAT, unix.SYS_CREAT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE}
