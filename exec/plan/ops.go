package plan

import "golang.org/x/sys/unix"

// kind names an entry of specs.
type kind uint8

const (
	opOpenat2 kind = iota
	opClose
	opCloseRange
	opDup3
	opRead
	opWrite
	opWriteBuf
	opWriteSlot
	opSendFD
	opSetns
	opUnshare
	opClone
	opFsopen
	opFsconfigString
	opFsconfigFlag
	opFsconfigFD
	opFsconfigCreate
	opFsmount
	opOpenTree
	opMoveMount
	opMountSetattr
	opMount
	opUmount2
	opPivotRoot
	opFchdir
	opChdir
	opChroot
	opGetcwd
	opMkdirat
	opMknodat
	opSymlinkat
	opUnlinkat
	opReadlinkat
	opFchown
	opFchownat
	opFchmod
	opFchmodat
	opUmask
	opStatx
	opSetsid
	opIoctl
	opSetgroups
	opSetresuid
	opSetresgid
	opPrctl
	opCapset
	opPrlimit
	opSethostname
	opSetdomainname
	opKeyctlJoinSession
	opSigmaskClear
	opSigDefault
	opSeccomp
	opPersonality
	opIoprioSet
	opSchedSetattr
	opSchedSetaffinity
	opGetpid
	opExecve
	opExecveBuf
	opExit
	opExpectByte
	opExpectEqual64
	numKinds
)

// form is how an operand is written.
type form uint8

const (
	fFD     form = iota // fd=name, cwd, s0
	fStr                // "text"
	fFlags              // A|B|0x10
	fEnum               // NAME or a number
	fInt                // -1
	fUint               // 1
	fOct                // 0755
	fHex                // 0x1f
	fBuf                // b0, b0+8
	fBytes              // "text", may hold NULs
	fIDs                // [1 2 3]
	fArgv               // ["a" "b"]
	fEnv                // env(2)["A=…" "B=…"]
	fFilter             // filter(3)
	fSlot               // s0
)

type operand struct {
	form  form
	names *names
}

// rawHow is where a system call argument comes from.
type rawHow uint8

const (
	rNone   rawHow = iota
	rOp            // operand i
	rConst         // the number i
	rLen           // length of operand i in bytes
	rCount         // length of operand i in words of 4 bytes
	rStruct        // address of word i of the structure
	rOffset        // arena offset of operand i
	rAddr          // arena address of the slot in operand i
)

type raw struct {
	how rawHow
	i   int
}

// spec describes one kind of step: how it is written, and how its operands
// become system call arguments. Builder, compiler, printer and decoder all
// read it, so that they cannot disagree.
type spec struct {
	name   string
	nr     uintptr
	forms  []operand
	raw    []raw
	out    bool // the result goes to a slot by default
	pseudo bool // not a system call
	once   bool // never retried after EINTR
	last   bool // does not return on success
	full   int  // argument, plus one, that is the only good result

	// words is the size of the structure that the call reads, in words of 8
	// bytes. pack fills it; without pack, operands from packFrom on are copied.
	words    int
	packFrom int
	pack     func(c *compiler, a []arg, w []uint64)
	patch    int // word, plus one, that gets the 32 low bits of args[5]

	check func(b *Builder, a []arg) // of operands that belong together
}

var (
	fd    = operand{form: fFD}
	str   = operand{form: fStr}
	integ = operand{form: fInt}
	unsig = operand{form: fUint}
	octal = operand{form: fOct}
	hex   = operand{form: fHex}
	buf   = operand{form: fBuf}
	data  = operand{form: fBytes}
)

func flags(n *names) operand { return operand{fFlags, n} }
func enum(n *names) operand  { return operand{fEnum, n} }

func forms(f ...operand) []operand { return f }
func raws(r ...raw) []raw          { return r }

func o(i int) raw { return raw{rOp, i} }
func k(i int) raw { return raw{rConst, i} }

var specs = [numKinds]spec{
	opOpenat2: {name: "openat2", nr: unix.SYS_OPENAT2, out: true,
		forms: forms(fd, str, flags(&openFlags), octal, flags(&resolveFlags)),
		raw:   raws(o(0), o(1), raw{rStruct, 0}, k(unix.SizeofOpenHow)), words: 3, packFrom: 2},
	// close(2): the descriptor is gone even after EINTR, so it is neither
	// retried nor a failure.
	opClose:      {name: "close", nr: unix.SYS_CLOSE, once: true, forms: forms(fd), raw: raws(o(0))},
	opCloseRange: {name: "close_range", nr: unix.SYS_CLOSE_RANGE, forms: forms(unsig, unsig), raw: raws(o(0), o(1), k(0))},
	opDup3: {name: "dup3", nr: unix.SYS_DUP3,
		forms: forms(fd, integ, flags(&openFlags)), raw: raws(o(0), o(1), o(2))},
	opRead:      {name: "read", check: checkReadWrite, nr: unix.SYS_READ, forms: forms(fd, buf, unsig), raw: raws(o(0), o(1), o(2))},
	opWrite:     {name: "write", nr: unix.SYS_WRITE, forms: forms(fd, data), raw: raws(o(0), o(1), raw{rLen, 1}), full: 3},
	opWriteBuf:  {name: "write_buf", check: checkReadWrite, nr: unix.SYS_WRITE, forms: forms(fd, buf, unsig), raw: raws(o(0), o(1), o(2)), full: 3},
	opWriteSlot: {name: "write_slot", nr: unix.SYS_WRITE, forms: forms(fd, operand{form: fSlot}), raw: raws(o(0), raw{rAddr, 1}, k(8)), full: 3},
	// sendmsg takes three arguments: the sixth is free to carry the descriptor
	// into the control message.
	opSendFD: {name: "send_fd", check: checkSendFD, nr: unix.SYS_SENDMSG, forms: forms(fd, fd, data),
		raw: raws(o(0), raw{rStruct, 0}, k(unix.MSG_NOSIGNAL), k(0), k(0), o(1)), words: 12, pack: packSendFD, patch: 12},

	opSetns:   {name: "setns", nr: unix.SYS_SETNS, forms: forms(fd, flags(&nsFlags)), raw: raws(o(0), o(1))},
	opUnshare: {name: "unshare", nr: unix.SYS_UNSHARE, forms: forms(flags(&cloneFlags)), raw: raws(o(0))},
	opClone: {name: "clone", check: checkClone, nr: unix.SYS_CLONE, once: true, out: true, forms: forms(flags(&cloneFlags)),
		raw: raws(o(0), k(0), k(0), k(0), k(0))},

	opFsopen: {name: "fsopen", nr: unix.SYS_FSOPEN, out: true, forms: forms(str, flags(&fsopenFlags)), raw: raws(o(0), o(1))},
	opFsconfigString: {name: "fsconfig_string", nr: unix.SYS_FSCONFIG, forms: forms(fd, str, str),
		raw: raws(o(0), k(unix.FSCONFIG_SET_STRING), o(1), o(2), k(0))},
	opFsconfigFlag: {name: "fsconfig_flag", nr: unix.SYS_FSCONFIG, forms: forms(fd, str),
		raw: raws(o(0), k(unix.FSCONFIG_SET_FLAG), o(1), k(0), k(0))},
	opFsconfigFD: {name: "fsconfig_fd", nr: unix.SYS_FSCONFIG, forms: forms(fd, str, fd),
		raw: raws(o(0), k(unix.FSCONFIG_SET_FD), o(1), k(0), o(2))},
	opFsconfigCreate: {name: "fsconfig_create", nr: unix.SYS_FSCONFIG, forms: forms(fd),
		raw: raws(o(0), k(unix.FSCONFIG_CMD_CREATE), k(0), k(0), k(0))},
	opFsmount: {name: "fsmount", nr: unix.SYS_FSMOUNT, out: true,
		forms: forms(fd, flags(&fsmountFlags), flags(&mountAttrs)), raw: raws(o(0), o(1), o(2))},
	opOpenTree: {name: "open_tree", nr: unix.SYS_OPEN_TREE, out: true,
		forms: forms(fd, str, flags(&openTreeFlags)), raw: raws(o(0), o(1), o(2))},
	opMoveMount: {name: "move_mount", nr: unix.SYS_MOVE_MOUNT,
		forms: forms(fd, str, fd, str, flags(&moveMountFlags)), raw: raws(o(0), o(1), o(2), o(3), o(4))},
	// The user namespace's descriptor may be in a slot: it travels in the free
	// sixth argument and is patched into the structure.
	opMountSetattr: {name: "mount_setattr", check: checkMountAttr, nr: unix.SYS_MOUNT_SETATTR,
		forms: forms(fd, str, flags(&atFlags), flags(&mountAttrs), flags(&mountAttrs), flags(&propagation), fd),
		raw:   raws(o(0), o(1), o(2), raw{rStruct, 0}, k(unix.MOUNT_ATTR_SIZE_VER0), o(6)), words: 4, pack: packMountAttr, patch: 4},
	opMount: {name: "mount", nr: unix.SYS_MOUNT,
		forms: forms(str, str, str, flags(&mountFlags), str), raw: raws(o(0), o(1), o(2), o(3), o(4))},
	opUmount2:   {name: "umount2", nr: unix.SYS_UMOUNT2, forms: forms(str, flags(&umountFlags)), raw: raws(o(0), o(1))},
	opPivotRoot: {name: "pivot_root", nr: unix.SYS_PIVOT_ROOT, forms: forms(str, str), raw: raws(o(0), o(1))},

	opFchdir:     {name: "fchdir", nr: unix.SYS_FCHDIR, forms: forms(fd), raw: raws(o(0))},
	opChdir:      {name: "chdir", nr: unix.SYS_CHDIR, forms: forms(str), raw: raws(o(0))},
	opChroot:     {name: "chroot", nr: unix.SYS_CHROOT, forms: forms(str), raw: raws(o(0))},
	opGetcwd:     {name: "getcwd", check: checkGetcwd, nr: unix.SYS_GETCWD, forms: forms(buf, unsig), raw: raws(o(0), o(1))},
	opMkdirat:    {name: "mkdirat", nr: unix.SYS_MKDIRAT, forms: forms(fd, str, octal), raw: raws(o(0), o(1), o(2))},
	opMknodat:    {name: "mknodat", nr: unix.SYS_MKNODAT, forms: forms(fd, str, octal, hex), raw: raws(o(0), o(1), o(2), o(3))},
	opSymlinkat:  {name: "symlinkat", nr: unix.SYS_SYMLINKAT, forms: forms(str, fd, str), raw: raws(o(0), o(1), o(2))},
	opUnlinkat:   {name: "unlinkat", nr: unix.SYS_UNLINKAT, forms: forms(fd, str, flags(&unlinkFlags)), raw: raws(o(0), o(1), o(2))},
	opReadlinkat: {name: "readlinkat", check: checkReadlink, nr: unix.SYS_READLINKAT, forms: forms(fd, str, buf, unsig), raw: raws(o(0), o(1), o(2), o(3))},
	opFchown:     {name: "fchown", nr: unix.SYS_FCHOWN, forms: forms(fd, integ, integ), raw: raws(o(0), o(1), o(2))},
	opFchownat: {name: "fchownat", nr: unix.SYS_FCHOWNAT, forms: forms(fd, str, integ, integ, flags(&atFlags)),
		raw: raws(o(0), o(1), o(2), o(3), o(4))},
	opFchmod:   {name: "fchmod", nr: unix.SYS_FCHMOD, forms: forms(fd, octal), raw: raws(o(0), o(1))},
	opFchmodat: {name: "fchmodat", nr: unix.SYS_FCHMODAT, forms: forms(fd, str, octal), raw: raws(o(0), o(1), o(2))},
	opUmask:    {name: "umask", nr: unix.SYS_UMASK, forms: forms(octal), raw: raws(o(0))},
	opStatx: {name: "statx", check: checkStatx, nr: unix.SYS_STATX, forms: forms(fd, str, flags(&atFlags), flags(&statxMask), buf),
		raw: raws(o(0), o(1), o(2), o(3), o(4))},

	opSetsid:    {name: "setsid", nr: unix.SYS_SETSID},
	opIoctl:     {name: "ioctl", nr: unix.SYS_IOCTL, forms: forms(fd, enum(&ioctls), hex), raw: raws(o(0), o(1), o(2))},
	opSetgroups: {name: "setgroups", nr: unix.SYS_SETGROUPS, forms: forms(operand{form: fIDs}), raw: raws(raw{rCount, 0}, o(0))},
	opSetresuid: {name: "setresuid", nr: unix.SYS_SETRESUID, forms: forms(unsig, unsig, unsig), raw: raws(o(0), o(1), o(2))},
	opSetresgid: {name: "setresgid", nr: unix.SYS_SETRESGID, forms: forms(unsig, unsig, unsig), raw: raws(o(0), o(1), o(2))},
	opPrctl: {name: "prctl", nr: unix.SYS_PRCTL, forms: forms(enum(&prctls), unsig, unsig, unsig, unsig),
		raw: raws(o(0), o(1), o(2), o(3), o(4))},
	opCapset: {name: "capset", nr: unix.SYS_CAPSET, forms: forms(hex, hex, hex),
		raw: raws(raw{rStruct, 0}, raw{rStruct, 1}), words: 4, pack: packCaps},
	opPrlimit: {name: "prlimit64", nr: unix.SYS_PRLIMIT64, forms: forms(enum(&rlimits), unsig, unsig),
		raw: raws(k(0), o(0), raw{rStruct, 0}, k(0)), words: 2, packFrom: 1},
	opSethostname:   {name: "sethostname", nr: unix.SYS_SETHOSTNAME, forms: forms(str), raw: raws(o(0), raw{rLen, 0})},
	opSetdomainname: {name: "setdomainname", nr: unix.SYS_SETDOMAINNAME, forms: forms(str), raw: raws(o(0), raw{rLen, 0})},
	opKeyctlJoinSession: {name: "keyctl_join_session", nr: unix.SYS_KEYCTL, forms: forms(str),
		raw: raws(k(unix.KEYCTL_JOIN_SESSION_KEYRING), o(0))},
	opSigmaskClear: {name: "sigmask_clear", nr: unix.SYS_RT_SIGPROCMASK,
		raw: raws(k(unix.SIG_SETMASK), raw{rStruct, 0}, k(0), k(8)), words: 1, packFrom: 0},
	// The kernel's struct sigaction is 4 words; all zero is SIG_DFL.
	opSigDefault: {name: "sig_default", nr: unix.SYS_RT_SIGACTION, forms: forms(enum(&signals)),
		raw: raws(o(0), raw{rStruct, 0}, k(0), k(8)), words: 4, packFrom: 1},
	opSeccomp: {name: "seccomp", check: checkSeccomp, nr: unix.SYS_SECCOMP, forms: forms(flags(&seccompFlags), operand{form: fFilter}),
		raw: raws(k(unix.SECCOMP_SET_MODE_FILTER), o(0), raw{rStruct, 0}), words: 2, pack: packFilter},
	opPersonality: {name: "personality", nr: unix.SYS_PERSONALITY, forms: forms(hex), raw: raws(o(0))},
	opIoprioSet:   {name: "ioprio_set", nr: unix.SYS_IOPRIO_SET, forms: forms(integ, integ, hex), raw: raws(o(0), o(1), o(2))},
	opSchedSetattr: {name: "sched_setattr", nr: unix.SYS_SCHED_SETATTR,
		forms: forms(unsig, hex, integ, unsig, unsig, unsig, unsig, unsig, unsig),
		raw:   raws(k(0), raw{rStruct, 0}, k(0)), words: 7, pack: packSchedAttr},
	opSchedSetaffinity: {name: "sched_setaffinity", check: checkAffinity, nr: unix.SYS_SCHED_SETAFFINITY, forms: forms(data),
		raw: raws(k(0), raw{rLen, 0}, o(0))},
	opGetpid: {name: "getpid", nr: unix.SYS_GETPID, out: true},

	opExecve: {name: "execve", nr: unix.SYS_EXECVE, once: true, last: true,
		forms: forms(str, operand{form: fArgv}, operand{form: fEnv}), raw: raws(o(0), o(1), o(2))},
	opExecveBuf: {name: "execve_buf", check: checkExecveBuf, nr: unix.SYS_EXECVE, once: true, last: true,
		forms: forms(buf, operand{form: fArgv}, operand{form: fEnv}), raw: raws(o(0), o(1), o(2))},
	opExit: {name: "exit", nr: unix.SYS_EXIT_GROUP, once: true, last: true, forms: forms(integ), raw: raws(o(0))},

	opExpectByte: {name: "expect_byte", check: checkExpectByte, nr: nrExpectByte, pseudo: true, forms: forms(buf, hex, enum(&errnos)),
		raw: raws(raw{rOffset, 0}, o(1), o(2))},
	opExpectEqual64: {name: "expect_equal64", check: checkExpectEqual, nr: nrExpectEqual, pseudo: true, forms: forms(buf, buf, enum(&errnos)),
		raw: raws(raw{rOffset, 0}, raw{rOffset, 1}, o(2))},
}
