//go:build !cgo

#include "textflag.h"

// func textBounds() (from, to uintptr)
TEXT ·textBounds(SB),NOSPLIT,$0-16
	LEAQ runtime·text(SB), AX
	MOVQ AX, from+0(FP)
	LEAQ runtime·etext(SB), AX
	MOVQ AX, to+8(FP)
	RET
