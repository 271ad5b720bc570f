package probe

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyConclusiveVerdictsAreKept(t *testing.T) {
	for _, tt := range []struct {
		name  string
		errno error
		kept  bool
		have  bool
	}{
		{"works", nil, true, true},
		{"ENOSYS", unix.ENOSYS, true, false},
		{"EINVAL", unix.EINVAL, true, false},
		{"EOPNOTSUPP", unix.EOPNOTSUPP, true, false},
		{"EPERM", unix.EPERM, true, false},
		{"ENOMEM", unix.ENOMEM, false, false},
		{"EMFILE", unix.EMFILE, false, false},
		{"not an errno", errors.New("x"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			f := New("frobnicate", 5, 7, func() error { calls++; return tt.errno })
			for range 3 {
				if f.Have() != tt.have {
					t.Errorf("have: %v", !tt.have)
				}
			}
			if want := map[bool]int{true: 1, false: 3}[tt.kept]; calls != want {
				t.Errorf("tried %d times, want %d", calls, want)
			}
			var m *MissingError
			if err := f.Check(); errors.As(err, &m) != (tt.kept && !tt.have) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAMissingFeatureSaysWhatIsNeeded(t *testing.T) {
	err := New("frobnicate", 5, 7, func() error { return unix.ENOSYS }).Check()
	if !strings.Contains(err.Error(), "frobnicate") || !strings.Contains(err.Error(), "5.7") || !errors.Is(err, unix.ENOSYS) {
		t.Error(err)
	}
	err = New("frobnicate", 5, 7, func() error { return unix.EPERM }).Check()
	if !strings.Contains(err.Error(), "refused") || !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}
