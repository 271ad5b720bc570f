//go:build !cgo

#include "textflag.h"

// func textBounds() (from, to uintptr)
TEXT ·textBounds(SB),NOSPLIT,$0-16
	MOVD $runtime·text(SB), R0
	MOVD R0, from+0(FP)
	MOVD $runtime·etext(SB), R0
	MOVD R0, to+8(FP)
	RET
