// Package cgroup1 is control groups version 1, alone or beside a version 2
// hierarchy without controllers (a hybrid host).
//
// A group is one directory in every hierarchy. Processes put themselves in: the
// child of a fork writes "0" to cgroup.procs of each. On a hybrid host the group
// has a directory in the unified hierarchy, too, for CLONE_INTO_CGROUP and for
// cgroup.kill, which version 1 has nothing like.
//
// The package is complete and takes no new features: version 1 gets none.
package cgroup1
