package pathsafe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// I1: no method takes a string where there is a parsed type. The two that take
// strings parse them against a table.
func TestMethodsTakeParsedPaths(t *testing.T) {
	may := map[string]bool{"WriteSysctl": true, "NS": true}
	for _, typ := range []reflect.Type{reflect.TypeFor[*Dir](), reflect.TypeFor[*Proc](), reflect.TypeFor[*Target](), reflect.TypeFor[*File]()} {
		for m := range typ.Methods() {
			for i := 1; i < m.Type.NumIn(); i++ {
				if m.Type.In(i).Kind() == reflect.String && !may[m.Name] {
					t.Errorf("%v.%s takes a string", typ, m.Name)
				}
			}
		}
	}
}

// I7: no path is made from a descriptor. The one exception is the reason for
// reopen.go being a file of its own.
func TestNoPathIsMadeFromADescriptor(t *testing.T) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || f == "reopen.go" {
			continue
		}
		text, err := os.ReadFile(f)
		must(t, err)
		for _, bad := range []string{`"fd/`, "self/fd", `"/proc`, `"/sys`} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s holds %s", f, bad)
			}
		}
	}
}

// I10: an error answers to its errno and to what it means, and is one line that
// quotes the path.
func TestErrorsSayWhatWhereAndWhy(t *testing.T) {
	s, dir := stateDir(t, "link l /", "file f x")
	r, _ := root(t)
	for _, tt := range []struct {
		err  error
		is   []error
		text string
	}{
		{second(s.Sub(MustRel("l"))), []error{ErrEscape, unix.ELOOP}, `openat2 "l" in state ` + dir + `: path leaves its tree: too many levels of symbolic links`},
		{second(s.Read(MustName("x y"), nil)), []error{unix.ENOENT, fs.ErrNotExist}, `openat2 "x y" in state ` + dir + `: no such file or directory`},
		{second(s.Read(MustName("f"), nil)), []error{ErrTooBig}, `check "f" in state ` + dir + `: content too big`},
		{second(r.Resolve(inRoot(t, "a\nb"), KindDir)), []error{unix.ENOENT}, `openat2 "/a\nb" in rootfs`},
		{r.Write(MustName("f"), nil), []error{ErrPolicy}, `operation not permitted on this kind of tree`},
	} {
		var op *OpError
		if !errors.As(tt.err, &op) {
			t.Errorf("%v is %T", tt.err, tt.err)
			continue
		}
		wantErr(t, tt.err, tt.is...)
		if !strings.Contains(tt.err.Error(), tt.text) || strings.Contains(tt.err.Error(), "\n") {
			t.Errorf("message %q, want %q", tt.err, tt.text)
		}
		for _, other := range []error{ErrEscape, ErrRaced, ErrGone, ErrType, ErrTooBig, ErrUnsupported} {
			wanted := false
			for _, is := range tt.is {
				wanted = wanted || is == other
			}
			if errors.Is(tt.err, other) != wanted {
				t.Errorf("%v is %v: %v", tt.err, other, !wanted)
			}
		}
	}
}
