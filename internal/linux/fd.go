package linux

import "golang.org/x/sys/unix"

// NotStdio moves a descriptor that the kernel placed on 0, 1 or 2 out of that
// range and returns the new number. Those numbers are free only when the
// process was started without them, and whatever sits there is read and written
// by code that believes it to be standard input or output.
func NotStdio(fd int) (int, unix.Errno) {
	if fd > 2 {
		return fd, 0
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	_ = unix.Close(fd)
	if err != nil {
		errno, _ := err.(unix.Errno)
		return -1, errno
	}
	return n, 0
}

// PidfdAlive asks whether the process behind pidfd has not been reaped yet, so
// that its number cannot have been given to another process. ESRCH means that
// it has.
//
// pidfd_send_signal: Linux 5.1, commit 3eb39f47934f.
func PidfdAlive(pidfd int) error {
	return unix.PidfdSendSignal(pidfd, 0, nil, 0)
}
