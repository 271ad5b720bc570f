package exec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// elf makes the head of a 64-bit little-endian ELF program with a PT_INTERP,
// if interp is not empty, behind another header.
func elf(machine uint16, interp string) string {
	b := make([]byte, 64+2*56, 1024)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 2)
	le.PutUint16(b[18:], machine)
	le.PutUint64(b[32:], 64) // e_phoff
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 2)
	le.PutUint32(b[64:], 6) // PT_PHDR
	if interp != "" {
		ph := b[64+56:]
		le.PutUint32(ph, 3)
		le.PutUint64(ph[8:], uint64(len(b)))
		le.PutUint64(ph[32:], uint64(len(interp)+1))
		b = append(append(b, interp...), 0)
	}
	return string(b)
}

func hostELF(interp string) string {
	for _, m := range machines {
		if m.goarch == runtime.GOARCH {
			return elf(m.machine, interp)
		}
	}
	panic("the host's machine is not in the table")
}

func foreignELF() string {
	if runtime.GOARCH == "arm64" {
		return elf(62, "")
	}
	return elf(183, "")
}

func TestExplainExec(t *testing.T) {
	files := tree{
		"/missing":       {mode: 0o755, content: "#!/mmnnttbb\n"},
		"/missing-args":  {mode: 0o755, content: "#! \t/mmnnttbb -x y\nexit\n"},
		"/crlf":          {mode: 0o755, content: "#!/bin/sh\r\necho\r\n"},
		"/relative":      {mode: 0o755, content: "#!bin/sh\n"},
		"/nested":        {mode: 0o755, content: "#!/missing\n"},
		"/musl":          {mode: 0o755, content: hostELF("/lib/ld-musl.so.1")},
		"/musl-script":   {mode: 0o755, content: "#!/musl\n"},
		"/dynamic":       {mode: 0o755, content: hostELF("/lib/ld.so")},
		"/lib/ld.so":     {mode: 0o755, content: hostELF("")},
		"/bin/sh":        {mode: 0o755, content: hostELF("")},
		"/static":        {mode: 0o755, content: hostELF("")},
		"/empty":         {mode: 0o755},
		"/text":          {mode: 0o755, content: "echo hello\n"},
		"/blank":         {mode: 0o755, content: "#! \t\n"},
		"/too-long":      {mode: 0o755, content: "#!/" + strings.Repeat("x", 500)},
		"/foreign":       {mode: 0o755, content: foreignELF()},
		"/short-elf":     {mode: 0o755, content: "\x7fELF"},
		"/noexec/app":    {mode: 0o755, noexec: true},
		"/plain":         {mode: 0o644},
		"/good-script":   {mode: 0o755, content: "#!/bin/sh\n"},
		"/plain-interp":  {mode: 0o755, content: "#!/plain\n"},
		"/noexec-interp": {mode: 0o755, content: "#!/noexec/app\n"},
		"/dir-interp":    {mode: 0o755, content: "#!/dir\n"},
		"/dir":           {mode: unix.S_IFDIR | 0o755},
		"/self":          {mode: 0o755, content: "#!/self\n"},
	}
	for _, tt := range []struct {
		path  string
		errno unix.Errno
		text  string
	}{
		{"/missing", unix.ENOENT, `exec: "/missing": interpreter "/mmnnttbb": no such file or directory`},
		{"/missing-args", unix.ENOENT, `exec: "/missing-args": interpreter "/mmnnttbb": no such file or directory`},
		{"/crlf", unix.ENOENT, `exec: "/crlf": interpreter "/bin/sh\r": no such file or directory: the script has Windows line ends (CR LF)`},
		{"/relative", unix.ENOENT, `exec: "/relative": interpreter "bin/sh": no such file or directory: its name is relative to the working directory`},
		{"/nested", unix.ENOENT, `exec: "/nested": interpreter "/missing" needs interpreter "/mmnnttbb": no such file or directory`},
		{"/musl", unix.ENOENT, `exec: "/musl": ELF interpreter "/lib/ld-musl.so.1": no such file or directory`},
		{"/musl-script", unix.ENOENT, `exec: "/musl-script": interpreter "/musl" needs ELF interpreter "/lib/ld-musl.so.1": no such file or directory`},
		{"/dynamic", unix.ELIBBAD, `exec: "/dynamic": ELF interpreter "/lib/ld.so": accessing a corrupted shared library`},
		{"/dynamic", unix.ENOENT, `exec: "/dynamic": no such file or directory`}, // it is back by now
		{"/gone", unix.ENOENT, `exec: "/gone": no such file or directory`},
		{"/empty", unix.ENOEXEC, `exec: "/empty": exec format error: the file is empty`},
		{"/text", unix.ENOEXEC, `exec: "/text": exec format error: neither an ELF program nor a script that starts with #!`},
		{"/blank", unix.ENOEXEC, `exec: "/blank": exec format error: no interpreter is named after #!`},
		{"/too-long", unix.ENOEXEC, `exec: "/too-long": exec format error: the name of the interpreter after #! is too long`},
		{"/foreign", unix.ENOEXEC, ""},
		{"/short-elf", unix.ENOEXEC, ""},
		{"/static", unix.ENOEXEC, `exec: "/static": exec format error: the ELF file is damaged or not a program`},
		{"/noexec/app", unix.EACCES, `exec: "/noexec/app": permission denied: is on a mount with noexec`},
		{"/plain", unix.EACCES, `exec: "/plain": permission denied: has no execute permission`},
		{"/static", unix.EACCES, `exec: "/static": permission denied`},
		{"/plain-interp", unix.EACCES, `exec: "/plain-interp": interpreter "/plain": permission denied: has no execute permission`},
		{"/noexec-interp", unix.EACCES, `exec: "/noexec-interp": interpreter "/noexec/app": permission denied: is on a mount with noexec`},
		{"/dir-interp", unix.EACCES, `exec: "/dir-interp": interpreter "/dir": permission denied: is a directory`},
		{"/self", unix.ELOOP, ""},
		{"/static", unix.E2BIG, `exec: "/static": argument list too long`},
		{"/missing", unix.ETXTBSY, `exec: "/missing": text file busy`},
		{"missing", unix.ENOENT, `exec: "missing": no such file or directory`},
		{"/good-script", unix.ENOENT, `exec: "/good-script": no such file or directory`},
	} {
		t.Run(strings.TrimPrefix(tt.path, "/")+" "+unix.ErrnoName(tt.errno), func(t *testing.T) {
			err := ExplainExec(files, tt.path, files.read, tt.errno)
			checkText(t, err, tt.errno, tt.text)
		})
	}
	if err := ExplainExec(files, "/foreign", files.read, unix.ENOEXEC); !strings.Contains(err.Error(), "exec format error: the program is for 64-bit ") {
		t.Errorf("foreign program: %v", err)
	}
	if err := ExplainExec(files, "/self", files.read, unix.ELOOP); !strings.Contains(err.Error(), "too many interpreters") {
		t.Errorf("loop of interpreters: %v", err)
	}
	bad := func(string, []byte) (int, error) { return 0, unix.EIO }
	if err := ExplainExec(files, "/text", bad, unix.ENOEXEC); err.Error() != `exec: "/text": exec format error` {
		t.Errorf("unreadable file: %v", err)
	}
	partly := func(p string, buf []byte) (int, error) {
		n, _ := files.read(p, buf)
		return n, errors.New("there is more")
	}
	if err := ExplainExec(files, "/missing", partly, unix.ENOENT); !strings.Contains(err.Error(), "/mmnnttbb") {
		t.Errorf("the first bytes of a large file were not used: %v", err)
	}
}

// host resolves in the root of the test.
type host struct{}

func (host) Stat(path string) (FileInfo, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return FileInfo{}, err
	}
	return FileInfo{Mode: st.Mode, UID: st.Uid, GID: st.Gid}, nil
}

func (host) read(path string, buf []byte) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Read(buf)
}

func TestTheKernelAgreesWithTheExplanations(t *testing.T) {
	dir := t.TempDir()
	x := strings.Repeat("x", 300)
	for name, tt := range map[string]struct {
		content string
		errno   unix.Errno
		names   string // in the explanation
	}{
		"missing":        {"#!/mmnnttbb\n", unix.ENOENT, `"/mmnnttbb"`},
		"no newline":     {"#!/mmnnttbb", unix.ENOENT, `"/mmnnttbb"`},
		"argument":       {"#!  /mmnnttbb\t-x\n", unix.ENOENT, `"/mmnnttbb"`},
		"cr":             {"#!/bin/sh\r\n", unix.ENOENT, `"/bin/sh\r"`},
		"nul":            {"#!/mmnn\x00ttbb\n", unix.ENOENT, `"/mmnn"`},
		"blank":          {"#!   \n", unix.ENOEXEC, "no interpreter"},
		"only":           {"#!", unix.EACCES, "no interpreter"},
		"empty":          {"", unix.ENOEXEC, "empty"},
		"text":           {"echo hello\n", unix.ENOEXEC, "neither"},
		"long name":      {"#!/" + x + "\n", unix.ENOEXEC, "too long"},
		"long argument":  {"#!/mmnnttbb " + x + "\n", unix.ENOENT, `"/mmnnttbb"`},
		"255 bytes":      {"#!/" + x[:252] + "\n", unix.ENOENT, `"/xxx`},
		"256 bytes":      {"#!/" + x[:253] + "\n", unix.ENOEXEC, "too long"},
		"long blanks":    {"#!" + strings.Repeat(" ", 300) + "/bin/sh\n", unix.ENOEXEC, ""},
		"missing loader": {hostELF("/mmnnttbb.so"), unix.ENOENT, `ELF interpreter "/mmnnttbb.so"`},
		"foreign":        {foreignELF(), unix.ENOEXEC, "the program is for 64-bit"},
		"directory":      {"#!" + dir + "\n", unix.EACCES, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := os.WriteFile(path, []byte(tt.content), 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := syscall.ForkExec(path, []string{path}, nil)
			if err != tt.errno {
				t.Fatalf("the kernel says %v; want %v", err, tt.errno)
			}
			got := ExplainExec(host{}, path, host{}.read, tt.errno)
			checkText(t, got, tt.errno, "")
			if !strings.Contains(got.Error(), tt.names) {
				t.Errorf("no %s in: %v", tt.names, got)
			}
		})
	}
}

func FuzzExplain(f *testing.F) {
	for _, s := range []string{"", "#!", "#!/a b\n", "#!\r\n", "text", "\x7fELF", hostELF("/x"), foreignELF(), hostELF("") + "#!"} {
		f.Add([]byte(s), uint32(unix.ENOENT))
		f.Add([]byte(s), uint32(unix.ENOEXEC))
	}
	b32 := []byte(elf(3, "/lib/ld.so"))
	b32[4] = 1
	f.Add(b32, uint32(unix.ENOENT))
	f.Add(bytes.Repeat([]byte("#!/f "), 100), uint32(unix.ELOOP))
	f.Fuzz(func(t *testing.T, content []byte, errno uint32) {
		files := tree{"/f": {mode: 0o755, content: string(content)}, "/bin/sh": {mode: 0o755}}
		e := unix.Errno(errno%133 + 1)
		err := ExplainExec(files, "/f", files.read, e)
		if !errors.Is(err, e) {
			t.Fatalf("%v is not %v", err, e)
		}
		if s := err.Error(); len(s) > 6000 || strings.ContainsAny(s, "\n\r\x00") || !utf8.ValidString(s) {
			t.Fatalf("message of %d bytes: %.300q", len(s), s)
		}
	})
}
