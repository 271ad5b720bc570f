// Package plan is an assembler for forked children.
//
// A [Builder] collects system calls, one typed method each. [Builder.Plan]
// checks them and lays them out in one block of memory. [Plan.Fork] copies the
// calling process with clone3 and lets the copy issue the calls one after the
// other, until execve succeeds or a call fails. A failure comes back over a
// socket as the index of the step and an errno, which [Plan.Error] turns into
// text.
//
// A step is a system call, its operands and what to do with the result: put it
// into a slot for later steps, insist on a value, tolerate an errno, or jump
// forward. There are no loops and no other branches, so that every plan ends
// and a reader can follow it from top to bottom. Two kinds of step are not
// system calls: they compare bytes of the plan's buffers.
//
// The child is a copy of a process with many threads of which it has one. It
// may not allocate, grow its stack, take a lock or call anything of the Go
// runtime: whatever needs that happens before, in the parent. The loop that
// the child runs is runInChild; a test reads its machine code.
//
// [Plan.String] prints a plan for golden files and logs, [Plan.Text] with
// nothing left out, and [Parse] reads both. docs/plan.md describes the format,
// the failure message and the rules of the child.
//
// The package knows nothing of containers. A new system call is an entry in
// specs, a method of Builder, a line in the sample of the tests and a test
// that watches it work.
package plan
