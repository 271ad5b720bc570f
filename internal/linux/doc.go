// Package linux holds the system calls and constants that golang.org/x/sys/unix
// lacks, or has only in a form that allocates, blocks for longer than the
// system call, or hides the errno.
//
// What may not be added: policy. A function here issues one system call and
// gives its errno back; which flags are safe is decided above (pathsafe).
// EINTR is handled here, so no caller has to.
package linux
