package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestWhatAProcessThatEndedHasSentIsNotRead(t *testing.T) {
	const env = "SHIM_TEST_SEND_AND_END"
	if path := os.Getenv(env); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("a request")); err != nil {
			t.Fatal(err)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conns := &connections{idle: make(chan struct{}, 1)}
	got, cred, err := conns.Handshake(context.Background(), conn)
	if err != nil { // an error would be a line in containerd's log for each container
		t.Fatal(err)
	}
	defer got.Close()
	if n, err := got.Read(make([]byte, 100)); n != 0 || !errors.Is(err, io.EOF) || cred != nil {
		t.Errorf("read %d bytes, %v, credentials %v", n, err, cred)
	}
	if conns.n != 0 {
		t.Errorf("%d connections counted", conns.n)
	}
}
