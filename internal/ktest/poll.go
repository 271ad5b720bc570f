package ktest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Slow is by how much deadlines are to be multiplied on this machine:
// $IBEX_TEST_SLOW, or 1.
func Slow() time.Duration {
	n, err := strconv.Atoi(os.Getenv("IBEX_TEST_SLOW"))
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

// Eventually calls f until it returns nil, and fails the test with f's last
// error when that takes longer than within. what completes the sentence
// "waiting for ...".
func Eventually(t testing.TB, within time.Duration, what string, f func() error) {
	t.Helper()
	if err := Poll(within, f); err != nil {
		t.Fatalf("waiting %v for %s: %v", within, what, err)
	}
}

// Poll calls f until it returns nil or within, times Slow, has passed, and
// returns its last error. The pauses grow from 1 ms to 50 ms.
func Poll(within time.Duration, f func() error) error {
	deadline := time.Now().Add(within * Slow())
	pause := time.Millisecond
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}
