#include "textflag.h"

#define SYS_CLONE3 435

// func cloneChild(args *cloneArgs, size, fn, steps, n, arena, sock uintptr) (r uintptr)
//
// The parent returns. The child, on its own stack, calls fn as the Go compiler
// does (ABIInternal: AX, BX, CX, DI; X15 is zero) and never returns. It has no
// goroutine: fn must not look for one.
TEXT ·cloneChild(SB),NOSPLIT,$0-64
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ fn+16(FP), R12
	MOVQ steps+24(FP), R13
	MOVQ n+32(FP), BX
	MOVQ arena+40(FP), R8
	MOVQ sock+48(FP), R9
	MOVQ $SYS_CLONE3, AX
	SYSCALL
	CMPQ AX, $0
	JEQ  child
	MOVQ AX, r+56(FP)
	RET
child:
	MOVQ  R13, AX
	MOVQ  R8, CX
	MOVQ  R9, DI
	XORPS X15, X15
	ANDQ  $~15, SP
	SUBQ  $64, SP // the callee may spill its arguments here
	CALL  R12
	INT   $3
