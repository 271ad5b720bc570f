package exec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
)

// elfFile is what matters of the head of an ELF file; elf(5).
type elfFile struct {
	class, data byte
	machine     uint16
	interp      string // content of PT_INTERP, empty if there is none
}

func isELF(head []byte) bool { return bytes.HasPrefix(head, []byte("\x7fELF")) }

// parseELF reads what there is of a head; it may be cut off or forged.
func parseELF(head []byte) elfFile {
	var f elfFile
	if len(head) < 20 {
		return f
	}
	f.class, f.data = head[4], head[5]
	var order binary.ByteOrder = binary.LittleEndian
	if f.data == 2 {
		order = binary.BigEndian
	}
	f.machine = order.Uint16(head[18:])
	f.interp = elfInterp(head, order, f.class == 2)
	return f
}

// elfInterp returns the name in the first PT_INTERP program header.
func elfInterp(head []byte, order binary.ByteOrder, is64 bool) string {
	// Offsets of e_phoff, e_phentsize, e_phnum and, in a program header, of
	// p_offset and p_filesz.
	phoffAt, sizeAt, numAt, offAt, fileszAt, minimum := 28, 42, 44, 4, 16, 32
	word := func(b []byte) uint64 { return uint64(order.Uint32(b)) }
	width := 4
	if is64 {
		phoffAt, sizeAt, numAt, offAt, fileszAt, minimum = 32, 54, 56, 8, 32, 56
		word, width = order.Uint64, 8
	}
	if len(head) < numAt+2 {
		return ""
	}
	at := word(head[phoffAt : phoffAt+width])
	size, num := uint64(order.Uint16(head[sizeAt:])), int(order.Uint16(head[numAt:]))
	if size < uint64(minimum) {
		return ""
	}
	total := uint64(len(head))
	for range num {
		if at > total || total-at < size {
			return ""
		}
		ph := head[at : at+size]
		if order.Uint32(ph) == 3 { // PT_INTERP
			off, n := word(ph[offAt:offAt+width]), word(ph[fileszAt:fileszAt+width])
			if off > total || n > total-off {
				return ""
			}
			name, _, _ := bytes.Cut(head[off:off+n], []byte{0})
			return string(name)
		}
		at += size
	}
	return ""
}

// machines are the architectures that an image may be for, by e_machine.
var machines = []struct {
	machine uint16
	name    string
	goarch  string
}{
	{3, "i386", "386"},
	{8, "mips", "mips"},
	{21, "ppc64", "ppc64"},
	{22, "s390x", "s390x"},
	{40, "arm", "arm"},
	{62, "x86-64", "amd64"},
	{183, "aarch64", "arm64"},
	{243, "riscv64", "riscv64"},
	{258, "loongarch64", "loong64"},
}

// foreign says for which machine the file is, if that is not this one.
func (f elfFile) foreign() string {
	name := fmt.Sprintf("machine %d", f.machine)
	for _, m := range machines {
		if m.machine != f.machine {
			continue
		}
		name = m.name
		if m.goarch == runtime.GOARCH && f.class == 2 && f.data == 1 {
			return "the ELF file is damaged or not a program"
		}
	}
	bits := map[byte]string{1: "32-bit ", 2: "64-bit "}[f.class]
	return fmt.Sprintf("the program is for %s%s, the machine is %s", bits, name, hostMachine())
}

func hostMachine() string {
	for _, m := range machines {
		if m.goarch == runtime.GOARCH {
			return m.name
		}
	}
	return runtime.GOARCH
}
