// Package plan is an assembler for forked children: a Builder collects system
// calls, Plan compiles them into one block of memory, and Fork runs them in a
// copy of the calling process until execve succeeds or a call fails.
package plan
