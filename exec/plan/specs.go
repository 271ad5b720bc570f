package plan

import "golang.org/x/sys/unix"

// spec describes one kind of step: how it is written, and how its operands
// become system call arguments. Builder, compiler, printer and decoder all
// read it, so that they cannot disagree.
type spec struct {
	name   string
	nr     uintptr
	forms  []operand // at most maxOperands
	raw    []raw     // at most 6
	out    bool      // the result goes to a slot by default
	pseudo bool      // not a system call
	once   bool      // never retried after EINTR
	last   bool      // does not return on success
	full   int       // argument, plus one, that is the only good result

	// words is the size of the structure that the call reads, in words of 8
	// bytes. pack fills it; without pack, operands from packFrom on are copied.
	words    int
	packFrom int
	pack     func(c *compiler, a []arg, w []uint64)
	patch    int // word, plus one, that gets the 32 low bits of args[5]

	check func(b *Builder, a []arg) // of operands that belong together
}

var specs = [numKinds]spec{
	opOpenat2: {
		name: "openat2", nr: unix.SYS_OPENAT2, out: true,
		forms: []operand{fFD, fStr, fFlags + tOpen, fOct, fFlags + tResolve},
		raw:   []raw{rOp + 0, rOp + 1, rStruct + 0, rConst + unix.SizeofOpenHow}, words: 3, packFrom: 2,
	},
	// close(2): the descriptor is gone even after EINTR, so it is neither
	// retried nor a failure.
	opClose:      {name: "close", nr: unix.SYS_CLOSE, once: true, forms: []operand{fFD}, raw: []raw{rOp + 0}},
	opCloseRange: {name: "close_range", nr: unix.SYS_CLOSE_RANGE, forms: []operand{fUint, fUint}, raw: []raw{rOp + 0, rOp + 1, rConst + 0}},
	opDup3: {
		name: "dup3", nr: unix.SYS_DUP3,
		forms: []operand{fFD, fInt, fFlags + tOpen}, raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opRead:      {name: "read", check: checkReadWrite, nr: unix.SYS_READ, forms: []operand{fFD, fBuf, fUint}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opWrite:     {name: "write", nr: unix.SYS_WRITE, forms: []operand{fFD, fBytes}, raw: []raw{rOp + 0, rOp + 1, rLen + 1}, full: 3},
	opWriteBuf:  {name: "write_buf", check: checkReadWrite, nr: unix.SYS_WRITE, forms: []operand{fFD, fBuf, fUint}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}, full: 3},
	opWriteSlot: {name: "write_slot", nr: unix.SYS_WRITE, forms: []operand{fFD, fSlot}, raw: []raw{rOp + 0, rAddr + 1, rConst + 8}, full: 3},
	// sendmsg takes three arguments: the sixth is free to carry the descriptor
	// into the control message.
	opSendFD: {
		name: "send_fd", check: checkSendFD, nr: unix.SYS_SENDMSG, forms: []operand{fFD, fFD, fBytes},
		raw: []raw{rOp + 0, rStruct + 0, rConst + unix.MSG_NOSIGNAL, rConst + 0, rConst + 0, rOp + 1}, words: 12, pack: packSendFD, patch: 12,
	},

	opSetns:   {name: "setns", nr: unix.SYS_SETNS, forms: []operand{fFD, fFlags + tNS}, raw: []raw{rOp + 0, rOp + 1}},
	opUnshare: {name: "unshare", nr: unix.SYS_UNSHARE, forms: []operand{fFlags + tClone}, raw: []raw{rOp + 0}},
	opClone: {
		name: "clone", check: checkClone, nr: unix.SYS_CLONE, once: true, out: true, forms: []operand{fFlags + tClone},
		raw: []raw{rOp + 0, rConst + 0, rConst + 0, rConst + 0, rConst + 0},
	},

	opFsopen: {name: "fsopen", nr: unix.SYS_FSOPEN, out: true, forms: []operand{fStr, fFlags + tFsopen}, raw: []raw{rOp + 0, rOp + 1}},
	opFsconfigString: {
		name: "fsconfig_string", nr: unix.SYS_FSCONFIG, forms: []operand{fFD, fStr, fStr},
		raw: []raw{rOp + 0, rConst + unix.FSCONFIG_SET_STRING, rOp + 1, rOp + 2, rConst + 0},
	},
	opFsconfigFlag: {
		name: "fsconfig_flag", nr: unix.SYS_FSCONFIG, forms: []operand{fFD, fStr},
		raw: []raw{rOp + 0, rConst + unix.FSCONFIG_SET_FLAG, rOp + 1, rConst + 0, rConst + 0},
	},
	opFsconfigFD: {
		name: "fsconfig_fd", nr: unix.SYS_FSCONFIG, forms: []operand{fFD, fStr, fFD},
		raw: []raw{rOp + 0, rConst + unix.FSCONFIG_SET_FD, rOp + 1, rConst + 0, rOp + 2},
	},
	opFsconfigCreate: {
		name: "fsconfig_create", nr: unix.SYS_FSCONFIG, forms: []operand{fFD},
		raw: []raw{rOp + 0, rConst + unix.FSCONFIG_CMD_CREATE, rConst + 0, rConst + 0, rConst + 0},
	},
	opFsmount: {
		name: "fsmount", nr: unix.SYS_FSMOUNT, out: true,
		forms: []operand{fFD, fFlags + tFsmount, fFlags + tMountAttr}, raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opOpenTree: {
		name: "open_tree", nr: unix.SYS_OPEN_TREE, out: true,
		forms: []operand{fFD, fStr, fFlags + tOpenTree}, raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opMoveMount: {
		name: "move_mount", nr: unix.SYS_MOVE_MOUNT,
		forms: []operand{fFD, fStr, fFD, fStr, fFlags + tMoveMount}, raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3, rOp + 4},
	},
	// The user namespace's descriptor may be in a slot: it travels in the free
	// sixth argument and is patched into the structure.
	opMountSetattr: {
		name: "mount_setattr", check: checkMountAttr, nr: unix.SYS_MOUNT_SETATTR,
		forms: []operand{fFD, fStr, fFlags + tAt, fFlags + tMountAttr, fFlags + tMountAttr, fFlags + tPropagation, fFD},
		raw:   []raw{rOp + 0, rOp + 1, rOp + 2, rStruct + 0, rConst + unix.MOUNT_ATTR_SIZE_VER0, rOp + 6}, words: 4, pack: packMountAttr, patch: 4,
	},
	opMount: {
		name: "mount", nr: unix.SYS_MOUNT,
		forms: []operand{fStr, fStr, fStr, fFlags + tMount, fStr}, raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3, rOp + 4},
	},
	opUmount2:   {name: "umount2", nr: unix.SYS_UMOUNT2, forms: []operand{fStr, fFlags + tUmount}, raw: []raw{rOp + 0, rOp + 1}},
	opPivotRoot: {name: "pivot_root", nr: unix.SYS_PIVOT_ROOT, forms: []operand{fStr, fStr}, raw: []raw{rOp + 0, rOp + 1}},

	opFchdir:     {name: "fchdir", nr: unix.SYS_FCHDIR, forms: []operand{fFD}, raw: []raw{rOp + 0}},
	opChdir:      {name: "chdir", nr: unix.SYS_CHDIR, forms: []operand{fStr}, raw: []raw{rOp + 0}},
	opChroot:     {name: "chroot", nr: unix.SYS_CHROOT, forms: []operand{fStr}, raw: []raw{rOp + 0}},
	opGetcwd:     {name: "getcwd", check: checkGetcwd, nr: unix.SYS_GETCWD, forms: []operand{fBuf, fUint}, raw: []raw{rOp + 0, rOp + 1}},
	opMkdirat:    {name: "mkdirat", nr: unix.SYS_MKDIRAT, forms: []operand{fFD, fStr, fOct}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opMknodat:    {name: "mknodat", nr: unix.SYS_MKNODAT, forms: []operand{fFD, fStr, fOct, fHex}, raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3}},
	opSymlinkat:  {name: "symlinkat", nr: unix.SYS_SYMLINKAT, forms: []operand{fStr, fFD, fStr}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opUnlinkat:   {name: "unlinkat", nr: unix.SYS_UNLINKAT, forms: []operand{fFD, fStr, fFlags + tUnlink}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opReadlinkat: {name: "readlinkat", check: checkReadlink, nr: unix.SYS_READLINKAT, forms: []operand{fFD, fStr, fBuf, fUint}, raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3}},
	opFchown:     {name: "fchown", nr: unix.SYS_FCHOWN, forms: []operand{fFD, fInt, fInt}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opFchownat: {
		name: "fchownat", nr: unix.SYS_FCHOWNAT, forms: []operand{fFD, fStr, fInt, fInt, fFlags + tAt},
		raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3, rOp + 4},
	},
	opFchmod:   {name: "fchmod", nr: unix.SYS_FCHMOD, forms: []operand{fFD, fOct}, raw: []raw{rOp + 0, rOp + 1}},
	opFchmodat: {name: "fchmodat", nr: unix.SYS_FCHMODAT, forms: []operand{fFD, fStr, fOct}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opUmask:    {name: "umask", nr: unix.SYS_UMASK, forms: []operand{fOct}, raw: []raw{rOp + 0}},
	opStatx: {
		name: "statx", check: checkStatx, nr: unix.SYS_STATX, forms: []operand{fFD, fStr, fFlags + tAt, fFlags + tStatx, fBuf},
		raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3, rOp + 4},
	},

	opSetsid:    {name: "setsid", nr: unix.SYS_SETSID},
	opIoctl:     {name: "ioctl", nr: unix.SYS_IOCTL, forms: []operand{fFD, fEnum + tIoctl, fHex}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opSetgroups: {name: "setgroups", nr: unix.SYS_SETGROUPS, forms: []operand{fIDs}, raw: []raw{rCount + 0, rOp + 0}},
	opSetresuid: {name: "setresuid", nr: unix.SYS_SETRESUID, forms: []operand{fUint, fUint, fUint}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opSetresgid: {name: "setresgid", nr: unix.SYS_SETRESGID, forms: []operand{fUint, fUint, fUint}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opPrctl: {
		name: "prctl", nr: unix.SYS_PRCTL, forms: []operand{fEnum + tPrctl, fUint, fUint, fUint, fUint},
		raw: []raw{rOp + 0, rOp + 1, rOp + 2, rOp + 3, rOp + 4},
	},
	opCapset: {
		name: "capset", nr: unix.SYS_CAPSET, forms: []operand{fHex, fHex, fHex},
		raw: []raw{rStruct + 0, rStruct + 1}, words: 4, pack: packCaps,
	},
	opPrlimit: {
		name: "prlimit64", nr: unix.SYS_PRLIMIT64, forms: []operand{fEnum + tRlimit, fUint, fUint},
		raw: []raw{rConst + 0, rOp + 0, rStruct + 0, rConst + 0}, words: 2, packFrom: 1,
	},
	opSethostname:   {name: "sethostname", nr: unix.SYS_SETHOSTNAME, forms: []operand{fStr}, raw: []raw{rOp + 0, rLen + 0}},
	opSetdomainname: {name: "setdomainname", nr: unix.SYS_SETDOMAINNAME, forms: []operand{fStr}, raw: []raw{rOp + 0, rLen + 0}},
	opKeyctlJoinSession: {
		name: "keyctl_join_session", nr: unix.SYS_KEYCTL, forms: []operand{fStr},
		raw: []raw{rConst + unix.KEYCTL_JOIN_SESSION_KEYRING, rOp + 0},
	},
	opSigmaskClear: {
		name: "sigmask_clear", nr: unix.SYS_RT_SIGPROCMASK,
		raw: []raw{rConst + unix.SIG_SETMASK, rStruct + 0, rConst + 0, rConst + 8}, words: 1, packFrom: 0,
	},
	// The kernel's struct sigaction is 4 words; all zero is SIG_DFL.
	opSigDefault: {
		name: "sig_default", nr: unix.SYS_RT_SIGACTION, forms: []operand{fEnum + tSignal},
		raw: []raw{rOp + 0, rStruct + 0, rConst + 0, rConst + 8}, words: 4, packFrom: 1,
	},
	opSeccomp: {
		name: "seccomp", check: checkSeccomp, nr: unix.SYS_SECCOMP, forms: []operand{fFlags + tSeccomp, fFilter},
		raw: []raw{rConst + unix.SECCOMP_SET_MODE_FILTER, rOp + 0, rStruct + 0}, words: 2, pack: packFilter,
	},
	opPersonality: {name: "personality", nr: unix.SYS_PERSONALITY, forms: []operand{fHex}, raw: []raw{rOp + 0}},
	opIoprioSet:   {name: "ioprio_set", nr: unix.SYS_IOPRIO_SET, forms: []operand{fInt, fInt, fHex}, raw: []raw{rOp + 0, rOp + 1, rOp + 2}},
	opSchedSetattr: {
		name: "sched_setattr", nr: unix.SYS_SCHED_SETATTR,
		forms: []operand{fUint, fHex, fInt, fUint, fUint, fUint, fUint, fUint, fUint},
		raw:   []raw{rConst + 0, rStruct + 0, rConst + 0}, words: 7, pack: packSchedAttr,
	},
	opSchedSetaffinity: {
		name: "sched_setaffinity", check: checkAffinity, nr: unix.SYS_SCHED_SETAFFINITY, forms: []operand{fBytes},
		raw: []raw{rConst + 0, rLen + 0, rOp + 0},
	},
	opSetMempolicy: {
		name: "set_mempolicy", nr: unix.SYS_SET_MEMPOLICY, forms: []operand{fHex, fBytes, fUint},
		raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opGetpid: {name: "getpid", nr: unix.SYS_GETPID, out: true},

	opExecve: {
		name: "execve", nr: unix.SYS_EXECVE, once: true, last: true,
		forms: []operand{fStr, fArgv, fEnv}, raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opExecveBuf: {
		name: "execve_buf", check: checkExecveBuf, nr: unix.SYS_EXECVE, once: true, last: true,
		forms: []operand{fBuf, fArgv, fEnv}, raw: []raw{rOp + 0, rOp + 1, rOp + 2},
	},
	opExit: {name: "exit", nr: unix.SYS_EXIT_GROUP, once: true, last: true, forms: []operand{fInt}, raw: []raw{rOp + 0}},

	opExpectByte: {
		name: "expect_byte", check: checkExpectByte, nr: nrExpectByte, pseudo: true, forms: []operand{fBuf, fHex, fEnum + tErrno},
		raw: []raw{rOffset + 0, rOp + 1, rOp + 2},
	},
	opExpectEqual64: {
		name: "expect_equal64", check: checkExpectEqual, nr: nrExpectEqual, pseudo: true, forms: []operand{fBuf, fBuf, fEnum + tErrno},
		raw: []raw{rOffset + 0, rOffset + 1, rOp + 2},
	},
}
