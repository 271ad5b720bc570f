package plan

import "golang.org/x/sys/unix"

// names is a table of the words that stand for numbers. For flags, entries of
// several bits come before those of which they consist.
type names []name

type name struct {
	val  uint64
	text string
}

var openFlags = names{
	{unix.O_TMPFILE, "TMPFILE"},
	{unix.O_SYNC, "SYNC"},
	{unix.O_RDWR, "RDWR"},
	{unix.O_WRONLY, "WRONLY"},
	{unix.O_PATH, "PATH"},
	{unix.O_DIRECTORY, "DIRECTORY"},
	{unix.O_CREAT, "CREAT"},
	{unix.O_EXCL, "EXCL"},
	{unix.O_TRUNC, "TRUNC"},
	{unix.O_APPEND, "APPEND"},
	{unix.O_NONBLOCK, "NONBLOCK"},
	{unix.O_NOCTTY, "NOCTTY"},
	{unix.O_NOFOLLOW, "NOFOLLOW"},
	{unix.O_CLOEXEC, "CLOEXEC"},
}

var resolveFlags = names{
	{unix.RESOLVE_IN_ROOT, "IN_ROOT"},
	{unix.RESOLVE_BENEATH, "BENEATH"},
	{unix.RESOLVE_NO_MAGICLINKS, "NO_MAGICLINKS"},
	{unix.RESOLVE_NO_SYMLINKS, "NO_SYMLINKS"},
	{unix.RESOLVE_NO_XDEV, "NO_XDEV"},
}

var nsFlags = names{
	{unix.CLONE_NEWUSER, "NEWUSER"},
	{unix.CLONE_NEWNS, "NEWNS"},
	{unix.CLONE_NEWPID, "NEWPID"},
	{unix.CLONE_NEWNET, "NEWNET"},
	{unix.CLONE_NEWIPC, "NEWIPC"},
	{unix.CLONE_NEWUTS, "NEWUTS"},
	{unix.CLONE_NEWCGROUP, "NEWCGROUP"},
	{unix.CLONE_NEWTIME, "NEWTIME"},
}

// The low byte of clone's flags is the exit signal, which collides with
// NEWTIME; Clone refuses everything but SIGCHLD there.
var cloneFlags = names{
	{unix.CLONE_NEWUSER, "NEWUSER"},
	{unix.CLONE_NEWNS, "NEWNS"},
	{unix.CLONE_NEWPID, "NEWPID"},
	{unix.CLONE_NEWNET, "NEWNET"},
	{unix.CLONE_NEWIPC, "NEWIPC"},
	{unix.CLONE_NEWUTS, "NEWUTS"},
	{unix.CLONE_NEWCGROUP, "NEWCGROUP"},
	{unix.CLONE_NEWTIME, "NEWTIME"},
	{unix.CLONE_PARENT, "PARENT"},
	{unix.CLONE_FILES, "FILES"},
	{unix.CLONE_FS, "FS"},
	{unix.CLONE_IO, "IO"},
	{unix.CLONE_PTRACE, "PTRACE"},
	{unix.CLONE_SYSVSEM, "SYSVSEM"},
	{unix.CLONE_UNTRACED, "UNTRACED"},
	{uint64(unix.SIGCHLD), "SIGCHLD"},
}

var fsopenFlags = names{{unix.FSOPEN_CLOEXEC, "CLOEXEC"}}

var fsmountFlags = names{{unix.FSMOUNT_CLOEXEC, "CLOEXEC"}}

var mountAttrs = names{
	{unix.MOUNT_ATTR__ATIME, "_ATIME"},
	{unix.MOUNT_ATTR_RDONLY, "RDONLY"},
	{unix.MOUNT_ATTR_NOSUID, "NOSUID"},
	{unix.MOUNT_ATTR_NODEV, "NODEV"},
	{unix.MOUNT_ATTR_NOEXEC, "NOEXEC"},
	{unix.MOUNT_ATTR_NOATIME, "NOATIME"},
	{unix.MOUNT_ATTR_STRICTATIME, "STRICTATIME"},
	{unix.MOUNT_ATTR_NODIRATIME, "NODIRATIME"},
	{unix.MOUNT_ATTR_IDMAP, "IDMAP"},
	{unix.MOUNT_ATTR_NOSYMFOLLOW, "NOSYMFOLLOW"},
}

var propagation = names{
	{unix.MS_PRIVATE, "PRIVATE"},
	{unix.MS_SLAVE, "SLAVE"},
	{unix.MS_SHARED, "SHARED"},
	{unix.MS_UNBINDABLE, "UNBINDABLE"},
}

var openTreeFlags = names{
	{unix.OPEN_TREE_CLONE, "CLONE"},
	{unix.OPEN_TREE_CLOEXEC, "CLOEXEC"},
	{unix.AT_RECURSIVE, "RECURSIVE"},
	{unix.AT_EMPTY_PATH, "EMPTY_PATH"},
	{unix.AT_NO_AUTOMOUNT, "NO_AUTOMOUNT"},
	{unix.AT_SYMLINK_NOFOLLOW, "SYMLINK_NOFOLLOW"},
}

var moveMountFlags = names{
	{unix.MOVE_MOUNT_F_SYMLINKS, "F_SYMLINKS"},
	{unix.MOVE_MOUNT_F_AUTOMOUNTS, "F_AUTOMOUNTS"},
	{unix.MOVE_MOUNT_F_EMPTY_PATH, "F_EMPTY_PATH"},
	{unix.MOVE_MOUNT_T_SYMLINKS, "T_SYMLINKS"},
	{unix.MOVE_MOUNT_T_AUTOMOUNTS, "T_AUTOMOUNTS"},
	{unix.MOVE_MOUNT_T_EMPTY_PATH, "T_EMPTY_PATH"},
	{unix.MOVE_MOUNT_SET_GROUP, "SET_GROUP"},
}

var atFlags = names{
	{unix.AT_SYMLINK_NOFOLLOW, "SYMLINK_NOFOLLOW"},
	{unix.AT_SYMLINK_FOLLOW, "SYMLINK_FOLLOW"},
	{unix.AT_EMPTY_PATH, "EMPTY_PATH"},
	{unix.AT_NO_AUTOMOUNT, "NO_AUTOMOUNT"},
	{unix.AT_RECURSIVE, "RECURSIVE"},
	{unix.AT_STATX_FORCE_SYNC, "FORCE_SYNC"},
	{unix.AT_STATX_DONT_SYNC, "DONT_SYNC"},
}

var unlinkFlags = names{{unix.AT_REMOVEDIR, "REMOVEDIR"}}

var mountFlags = names{
	{unix.MS_RDONLY, "RDONLY"},
	{unix.MS_NOSUID, "NOSUID"},
	{unix.MS_NODEV, "NODEV"},
	{unix.MS_NOEXEC, "NOEXEC"},
	{unix.MS_SYNCHRONOUS, "SYNCHRONOUS"},
	{unix.MS_REMOUNT, "REMOUNT"},
	{unix.MS_MANDLOCK, "MANDLOCK"},
	{unix.MS_DIRSYNC, "DIRSYNC"},
	{unix.MS_NOSYMFOLLOW, "NOSYMFOLLOW"},
	{unix.MS_NOATIME, "NOATIME"},
	{unix.MS_NODIRATIME, "NODIRATIME"},
	{unix.MS_BIND, "BIND"},
	{unix.MS_MOVE, "MOVE"},
	{unix.MS_REC, "REC"},
	{unix.MS_SILENT, "SILENT"},
	{unix.MS_UNBINDABLE, "UNBINDABLE"},
	{unix.MS_PRIVATE, "PRIVATE"},
	{unix.MS_SLAVE, "SLAVE"},
	{unix.MS_SHARED, "SHARED"},
	{unix.MS_RELATIME, "RELATIME"},
	{unix.MS_I_VERSION, "I_VERSION"},
	{unix.MS_STRICTATIME, "STRICTATIME"},
	{unix.MS_LAZYTIME, "LAZYTIME"},
}

var umountFlags = names{
	{unix.MNT_FORCE, "FORCE"},
	{unix.MNT_DETACH, "DETACH"},
	{unix.MNT_EXPIRE, "EXPIRE"},
	{unix.UMOUNT_NOFOLLOW, "NOFOLLOW"},
}

var statxMask = names{
	{unix.STATX_BASIC_STATS, "BASIC_STATS"},
	{unix.STATX_TYPE, "TYPE"},
	{unix.STATX_MODE, "MODE"},
	{unix.STATX_NLINK, "NLINK"},
	{unix.STATX_UID, "UID"},
	{unix.STATX_GID, "GID"},
	{unix.STATX_INO, "INO"},
	{unix.STATX_SIZE, "SIZE"},
	{unix.STATX_MNT_ID, "MNT_ID"},
	{unix.STATX_MNT_ID_UNIQUE, "MNT_ID_UNIQUE"},
}

var seccompFlags = names{
	{unix.SECCOMP_FILTER_FLAG_TSYNC, "TSYNC"},
	{unix.SECCOMP_FILTER_FLAG_LOG, "LOG"},
	{unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, "SPEC_ALLOW"},
	{unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, "NEW_LISTENER"},
	{unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, "TSYNC_ESRCH"},
	{unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, "WAIT_KILLABLE_RECV"},
}

var ioctls = names{
	{unix.TIOCSCTTY, "TIOCSCTTY"},
	{unix.TIOCNOTTY, "TIOCNOTTY"},
	{unix.TIOCSPTLCK, "TIOCSPTLCK"},
	{unix.TIOCGPTPEER, "TIOCGPTPEER"},
	{unix.TIOCSWINSZ, "TIOCSWINSZ"},
	{unix.NS_GET_USERNS, "NS_GET_USERNS"},
	{unix.NS_GET_PARENT, "NS_GET_PARENT"},
}

var prctls = names{
	{unix.PR_SET_PDEATHSIG, "SET_PDEATHSIG"},
	{unix.PR_SET_DUMPABLE, "SET_DUMPABLE"},
	{unix.PR_SET_KEEPCAPS, "SET_KEEPCAPS"},
	{unix.PR_SET_SECCOMP, "SET_SECCOMP"},
	{unix.PR_CAPBSET_READ, "CAPBSET_READ"},
	{unix.PR_CAPBSET_DROP, "CAPBSET_DROP"},
	{unix.PR_SET_TSC, "SET_TSC"},
	{unix.PR_SET_SECUREBITS, "SET_SECUREBITS"},
	{unix.PR_SET_TIMERSLACK, "SET_TIMERSLACK"},
	{unix.PR_SET_CHILD_SUBREAPER, "SET_CHILD_SUBREAPER"},
	{unix.PR_SET_NO_NEW_PRIVS, "SET_NO_NEW_PRIVS"},
	{unix.PR_SET_THP_DISABLE, "SET_THP_DISABLE"},
	{unix.PR_CAP_AMBIENT, "CAP_AMBIENT"},
	{unix.PR_SET_SPECULATION_CTRL, "SET_SPECULATION_CTRL"},
	{unix.PR_SET_IO_FLUSHER, "SET_IO_FLUSHER"},
	{unix.PR_SET_MDWE, "SET_MDWE"},
	{unix.PR_SET_MEMORY_MERGE, "SET_MEMORY_MERGE"},
}

var rlimits = names{
	{unix.RLIMIT_CPU, "CPU"},
	{unix.RLIMIT_FSIZE, "FSIZE"},
	{unix.RLIMIT_DATA, "DATA"},
	{unix.RLIMIT_STACK, "STACK"},
	{unix.RLIMIT_CORE, "CORE"},
	{unix.RLIMIT_RSS, "RSS"},
	{unix.RLIMIT_NPROC, "NPROC"},
	{unix.RLIMIT_NOFILE, "NOFILE"},
	{unix.RLIMIT_MEMLOCK, "MEMLOCK"},
	{unix.RLIMIT_AS, "AS"},
	{unix.RLIMIT_LOCKS, "LOCKS"},
	{unix.RLIMIT_SIGPENDING, "SIGPENDING"},
	{unix.RLIMIT_MSGQUEUE, "MSGQUEUE"},
	{unix.RLIMIT_NICE, "NICE"},
	{unix.RLIMIT_RTPRIO, "RTPRIO"},
	{unix.RLIMIT_RTTIME, "RTTIME"},
}

// The tables by number, as an operand has them in its high byte.
const (
	tOpen operand = iota << 8
	tResolve
	tNS
	tClone
	tFsopen
	tFsmount
	tMountAttr
	tPropagation
	tOpenTree
	tMoveMount
	tAt
	tUnlink
	tMount
	tUmount
	tStatx
	tSeccomp
	tIoctl
	tPrctl
	tRlimit
	tSignal
	tErrno
)

// Errnos and signals are looked up in x/sys.
var tables = [...]*names{
	tOpen >> 8:        &openFlags,
	tResolve >> 8:     &resolveFlags,
	tNS >> 8:          &nsFlags,
	tClone >> 8:       &cloneFlags,
	tFsopen >> 8:      &fsopenFlags,
	tFsmount >> 8:     &fsmountFlags,
	tMountAttr >> 8:   &mountAttrs,
	tPropagation >> 8: &propagation,
	tOpenTree >> 8:    &openTreeFlags,
	tMoveMount >> 8:   &moveMountFlags,
	tAt >> 8:          &atFlags,
	tUnlink >> 8:      &unlinkFlags,
	tMount >> 8:       &mountFlags,
	tUmount >> 8:      &umountFlags,
	tStatx >> 8:       &statxMask,
	tSeccomp >> 8:     &seccompFlags,
	tIoctl >> 8:       &ioctls,
	tPrctl >> 8:       &prctls,
	tRlimit >> 8:      &rlimits,
	tErrno >> 8:       nil,
}
