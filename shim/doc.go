// Package shim is the containerd protocol and nothing else: it starts and finds
// shims for containerd, serves its task API, moves bytes between FIFOs and
// processes, and reports events in order. What a container is and how it is
// made is package container's business.
//
// Reading order: run.go (what a call of the binary does), bootstrap.go (start),
// serve.go, register.go, service.go (the API), task.go and process.go (order of
// events), stdio.go and stream.go (input and output).
//
// # Order of events
//
// Each shim has one queue (publisher). TaskCreate, TaskStart, TaskExecAdded and
// TaskExecStarted are put in before the call that caused them is answered.
// TaskExit comes from the container's own goroutine, which reports execs before
// the first process; an exit waits in task.exits until the event of its start is
// in the queue. TaskOOM is put in by the same goroutine before the exit that it
// explains.
//
// # Locks
//
// From the outside in: process.starting, service.mu, task.mu, processIO.mu,
// stream.mu, poller.mu and publisher.mu. None but process.starting is held while
// something slow happens, so Connect, State and Pids never wait for a container.
package shim
