package shim

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAShimThatNobodyUsesEnds(t *testing.T) {
	for _, used := range []bool{false, true} {
		old := unusedTimeout
		unusedTimeout = 20 * time.Millisecond
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		s := newService("ns", newPublisher("ns", filepath.Join(t.TempDir(), "none")))
		if used {
			if err := s.claim("c"); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- s.serve(l) }()
		if used {
			s.stopUnused() // what the timer calls
			s.mu.Lock()
			if s.stopping {
				t.Error("a shim in use has ended")
			}
			s.stopLocked()
			s.mu.Unlock()
		}
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("it does not end")
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("the socket is there still")
		}
		unusedTimeout = old
	}
}
