package shim

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
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
	defer conn.Close()
	conns := newConnections()
	// Another error would be a line in containerd's log for each container.
	if _, err := conns.admit(conn.(*net.UnixConn)); !errors.Is(err, errPeerEnded) {
		t.Errorf("admit() error = %v; want %v", err, errPeerEnded)
	}
	if n := len(conns.open); n != 0 {
		t.Errorf("%d connections counted", n)
	}
}

func TestAConnectionEndsWithTheAnswerThatItWaitsFor(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := newConnections()
	connect := func() (client, server net.Conn) {
		client, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = l.Accept(); err == nil {
			server, err = conns.admit(server.(*net.UnixConn))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := server.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return client, server
	}
	ended := func(name string, c net.Conn) {
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: read %d bytes, %v", name, n, err)
		}
	}
	_, idle := connect()
	client, asked := connect()
	if _, err := client.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	if n, err := asked.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	conns.hangUp()
	ended("idle", idle)
	if n, err := asked.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("no answer yet: read %d bytes, %v", n, err)
	}
	if _, err := asked.Write([]byte("c")); err != nil {
		t.Error(err)
	}
	ended("answered", asked)
	idle.Close()
	asked.Close()
	conns.wait(10 * time.Second)
	if len(conns.open) != 0 {
		t.Error("connections are still counted")
	}
}
