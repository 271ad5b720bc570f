// Package cgroup2 is control groups version 2, the unified hierarchy.
//
// A process is born in its group (CLONE_INTO_CGROUP). Killing is one write to
// cgroup.kill, and devices are controlled by a BPF program on the directory.
package cgroup2
