// Package pathsafe is the only code of ibex that turns a path into a
// descriptor.
//
// Who is not trusted: the author of the image (what is in the root filesystem),
// processes of other containers that share a volume and rename and link in it
// meanwhile, processes of the container itself, and a tenant with a cgroup
// subtree of its own. Root on the host and containerd are trusted, but their
// strings are parsed strictly all the same. Mounts that appear in the shim's own
// mount namespace are noticed, not survived.
//
// How it works: a path is parsed into a Rel, Name or InRoot first. It is
// resolved by openat2(2) below a Dir, a held descriptor whose Policy fixes the
// RESOLVE flags; there is no other resolver and no fallback. What comes back is
// checked (type, owner, mount, filesystem), and used as a descriptor from then
// on: no path is ever made from a descriptor.
//
//	OpenHierarchy  a cgroup mount          -> Dir, PolicyKernfs
//	OpenState      a directory of ibex's   -> Dir, PolicyState
//	OpenProc       a procfs of our own     -> Proc, PolicyProc
//	OpenRootfs     a container's root      -> Dir, PolicyRootfs
//
// When not to use it: for a path inside a running container that a process
// executes or changes to; the kernel resolves that one after setns(2).
//
// Reading order: parse.go, dir.go, kernio.go, tree.go, rootfs.go, mount.go.
package pathsafe
