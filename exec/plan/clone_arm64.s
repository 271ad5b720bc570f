#include "textflag.h"

#define SYS_CLONE3 435

// func cloneChild(args *cloneArgs, size, fn, steps, n, arena, sock uintptr) (r uintptr)
//
// The parent returns. The child, on its own stack, calls fn as the Go compiler
// does (ABIInternal: R0 to R3) and never returns. It has no goroutine: fn must
// not look for one.
TEXT ·cloneChild(SB),NOSPLIT,$0-64
	MOVD args+0(FP), R0
	MOVD size+8(FP), R1
	MOVD fn+16(FP), R9
	MOVD steps+24(FP), R10
	MOVD n+32(FP), R11
	MOVD arena+40(FP), R12
	MOVD sock+48(FP), R13
	MOVD $SYS_CLONE3, R8
	SVC
	CBZ  R0, child
	MOVD R0, r+56(FP)
	RET
child:
	MOVD R10, R0
	MOVD R11, R1
	MOVD R12, R2
	MOVD R13, R3
	SUB  $96, RSP // the callee may spill its arguments here
	CALL (R9)
	BRK
