// Package systemd has systemd make and keep the cgroup of a container, as a
// transient scope. On a host that systemd runs, a cgroup that it does not know
// of may be taken over or removed; a scope with Delegate=yes is left to us below
// its own directory (docs of systemd, "Control Group APIs and Delegation").
//
// The limits are written to the cgroup's files by package cgroup2, which knows
// all of them, and told to systemd as properties where it has such, so that a
// daemon-reload or an update of the slice does not undo them.
//
// Only version 2 is supported: on version 1 systemd writes to controllers that
// it must share with us, the devices among them.
package systemd
