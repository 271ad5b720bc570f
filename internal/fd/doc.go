// Package fd owns file descriptors. An FD has one owner, is closed once however
// often Close is called, and is not closed under a system call that uses it.
//
// There is no finalizer: a descriptor that is forgotten is a bug, and tests
// find it with StartTrace and Leaked.
//
// What may not be added: opening. A descriptor comes from pathsafe or from a
// system call of the caller's.
package fd
