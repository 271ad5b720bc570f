package linux

import (
	"bytes"
	"encoding/binary"
)

// ParseDirents calls add for each record of a getdents64(2) buffer and returns
// what the last call returned. It reports false if the buffer is not made of
// whole records, which the kernel guarantees.
//
// struct linux_dirent64: u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, d_name.
func ParseDirents[T any](acc T, buf []byte, add func(acc T, ino uint64, typ uint8, name string) T) (T, bool) {
	const header = 19
	for len(buf) > 0 {
		if len(buf) < header {
			return acc, false
		}
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < header || size > len(buf) {
			return acc, false
		}
		name := buf[header:size]
		end := bytes.IndexByte(name, 0)
		if end < 0 {
			return acc, false
		}
		acc = add(acc, binary.NativeEndian.Uint64(buf), buf[18], string(name[:end]))
		buf = buf[size:]
	}
	return acc, true
}
