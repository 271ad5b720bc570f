package linux

import "strings"

// CString is text that ends in its only NUL byte, so that it reaches the kernel
// without being copied. The zero CString is not a string at all, and every call
// here refuses it with EINVAL.
type CString string

// NewCString makes a CString. It reports false if s holds a NUL byte.
func NewCString(s string) (CString, bool) {
	if strings.IndexByte(s, 0) >= 0 {
		return "", false
	}
	return CString(s + "\x00"), true
}

// Valid reports whether c was made by NewCString.
func (c CString) Valid() bool { return len(c) > 0 && c[len(c)-1] == 0 }

// String returns the text without the NUL.
func (c CString) String() string {
	if len(c) == 0 {
		return ""
	}
	return string(c[:len(c)-1])
}
