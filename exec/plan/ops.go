package plan

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
	opSetMempolicy
	opGetpid
	opExecve
	opExecveBuf
	opExit
	opExpectByte
	opExpectEqual64
	numKinds
)

// operand is how an operand is written: a form, with a table of words for the
// two forms that have one. It is a number, and raw too, so that the linker
// lays out specs and nothing is left to do at start-up.
type operand uint16

const (
	fFD     operand = iota // fd=name, cwd, s0
	fStr                   // "text"
	fFlags                 // A|B|0x10, + table
	fEnum                  // NAME or a number, + table
	fInt                   // -1
	fUint                  // 1
	fOct                   // 0755
	fHex                   // 0x1f
	fBuf                   // b0, b0+8
	fBytes                 // "text", may hold NULs
	fIDs                   // [1 2 3]
	fArgv                  // ["a" "b"]
	fEnv                   // env(2)["A=…" "B=…"]
	fFilter                // filter(3)
	fSlot                  // s0
)

func (f operand) form() operand { return f & 0xff }
func (f operand) names() *names { return tables[f>>8] }

// raw is where a system call argument comes from: one of these, plus a number
// in the low half.
type raw uint64

const (
	rOp     raw = iota << 32 // operand i
	rConst                   // the number i
	rLen                     // length of operand i in bytes
	rCount                   // length of operand i in words of 4 bytes
	rStruct                  // address of word i of the structure
	rOffset                  // arena offset of operand i
	rAddr                    // arena address of the slot in operand i
)

func (r raw) how() raw { return r >> 32 << 32 }
func (r raw) i() int   { return int(uint32(r)) }
