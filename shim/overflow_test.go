package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// numbered is n lines of 16 bytes that follow each other.
func numbered(from, n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "%015d\n", from+i)
	}
	return b.Bytes()
}

// write writes from a process's end, which blocks if nothing takes the bytes.
func write(t *testing.T, w *os.File, b []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Write(b)
	}()
	waitDone(t, "a write of the process", done)
}

// idle waits until the stream has taken all that was written.
func idle(t *testing.T, s *stream) {
	t.Helper()
	waitFor(t, "the stream to take what was written", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n, err := unix.IoctlGetInt(s.src, unix.TIOCINQ)
		return err == nil && n == 0
	})
}

func dropping(t *testing.T, limit int) (o *output, dropped func() []int64) {
	t.Helper()
	o = testOutput(t, testPoller(t))
	var mu sync.Mutex
	var all []int64
	o.s.mu.Lock()
	o.s.over = &overflow{limit: limit, warn: func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, n)
	}}
	o.s.mu.Unlock()
	return o, func() []int64 {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestAStalledReaderNeverBlocksTheWriterAndFindsACountOfWhatIsMissing(t *testing.T) {
	o, dropped := dropping(t, 256<<10)
	r := o.open(t)
	const lines = 128 << 10 // 2 MiB
	write(t, o.w, numbered(0, lines))
	idle(t, o.s)
	// The reader comes back. What is written when it has what was kept is whole.
	var got bytes.Buffer
	buf := make([]byte, 64<<10)
	read := func(until string) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !bytes.Contains(got.Bytes(), []byte(until)) {
				n, err := r.Read(buf)
				if err != nil {
					return
				}
				got.Write(buf[:n])
			}
		}()
		waitDone(t, "the reader to find "+until, done)
	}
	read("in time]\n")
	after := numbered(lines, 1000)
	write(t, o.w, after)
	o.w.Close()
	read(string(after[len(after)-16:]))
	before, rest, ok := strings.Cut(got.String(), "\n[ibex: ")
	n, rest, ok2 := strings.Cut(rest, " bytes of output dropped here, which nobody read in time]\n")
	if !ok || !ok2 || rest != string(after) {
		t.Fatalf("no line for the gap, or not the right text behind it: %q", got.String()[max(0, got.Len()-200):])
	}
	if want := numbered(0, lines)[:len(before)]; before != string(want) || len(before) < 256<<10 {
		t.Errorf("%d bytes before the gap, not those that were written first", len(before))
	}
	if missing := int64(lines*16 - len(before)); n != fmt.Sprint(missing) || !slices.Equal(dropped(), []int64{missing}) {
		t.Errorf("missing %d, the line says %s, the log %v", missing, n, dropped())
	}
}

func TestWhatFitsIntoTheSpoolIsNotLost(t *testing.T) {
	o, dropped := dropping(t, 4<<20)
	r := o.open(t)
	all := numbered(0, 128<<10)
	write(t, o.w, all)
	o.w.Close() // the end of the source does not end the delivery
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, all) || len(dropped()) != 0 {
		t.Errorf("%d of %d bytes, %v, %v", len(got), len(all), dropped(), err)
	}
}

func TestADrainDeliversTheSpool(t *testing.T) {
	o, _ := dropping(t, 4<<20)
	r := o.open(t)
	all := numbered(0, 64<<10)
	write(t, o.w, all)
	go o.s.drain(10 * time.Second) // o.w stays open, as in a child that lives on
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, all) {
		t.Errorf("%d of %d bytes, %v", len(got), len(all), err)
	}
}

func TestThePolicyComesFromTheAnnotationThenTheOption(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     options
		notes map[string]string
		limit int // 0: block
		err   string
	}{
		{"nothing", options{}, nil, 0, ""},
		{"option", options{LogOverflow: "drop"}, nil, 1 << 20, ""},
		{"option with size", options{LogOverflow: "drop", LogSpool: 5}, nil, 5, ""},
		{"annotation", options{}, map[string]string{overflowAnnotation: "drop", spoolAnnotation: "7"}, 7, ""},
		{"annotation against the option", options{LogOverflow: "drop"}, map[string]string{overflowAnnotation: "block"}, 0, ""},
		{"a bad word", options{}, map[string]string{overflowAnnotation: "lose"}, 0, overflowAnnotation},
		{"a bad size", options{}, map[string]string{spoolAnnotation: "1M"}, 0, spoolAnnotation},
		{"a huge size", options{}, map[string]string{spoolAnnotation: "99999999999"}, 0, spoolAnnotation},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := overflowOf(tt.o, tt.notes)
			if tt.err != "" {
				if !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || (o == nil) != (tt.limit == 0) || o != nil && o.limit != tt.limit {
				t.Errorf("%+v %v", o, err)
			}
		})
	}
}
