// Package cgroups holds what the two versions of control groups agree on: where
// the hierarchies are, what a cgroupsPath means, the statistics, the device
// rules, the conversions of numbers, and the errors.
//
// The groups themselves are in cgroups/v1 (package cgroup1, also for hybrid
// hosts) and cgroups/v2 (package cgroup2). The two do not import each other: a
// quirk of version 1 that leaks into version 2 stays there for good.
//
// Every file is reached from a held directory descriptor of its hierarchy, see
// package pathsafe. A write is one openat2 with RESOLVE_BENEATH,
// RESOLVE_NO_SYMLINKS, RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV and exactly
// one write(2), because the kernel takes one write for one setting.
package cgroups
