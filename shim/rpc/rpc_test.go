package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ibex-run/ibex/shim/wire"
)

const taskService = "containerd.task.v3.Task"

// echo is a server that knows a few methods of the task service.
func echo() *Server {
	return &Server{
		Services: []string{taskService},
		Methods: map[string]Handler{
			"State": Method(func(_ context.Context, r *wire.ProcessRequest) (*wire.StateResponse, error) {
				return &wire.StateResponse{ID: r.ID, ExecID: r.ExecID}, nil
			}),
			"Kill": Method(func(context.Context, *wire.KillRequest) (*wire.Empty, error) {
				return nil, &Error{NotFound, "no such thing: $PATH"}
			}),
			"Pause": Method(func(context.Context, *wire.ContainerRequest) (*wire.Empty, error) {
				return nil, errors.New("plain")
			}),
			"Pids": Method(func(_ context.Context, r *wire.ContainerRequest) (*wire.StateResponse, error) {
				return &wire.StateResponse{Bundle: strings.Repeat("x", maxLength)}, nil
			}),
		},
	}
}

// serve connects to a server and returns the other end, and what Serve returned.
func serve(t *testing.T, s *Server) (net.Conn, <-chan error) {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), there) }()
	t.Cleanup(func() { here.Close() })
	return here, done
}

func TestContainerdsClientIsAnswered(t *testing.T) {
	conn, done := serve(t, echo())
	c := ttrpc.NewClient(conn)
	api := task.NewTTRPCTaskClient(c)
	ctx := ttrpc.WithMetadata(context.Background(), ttrpc.MD{"key": {"value"}})

	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			id := strings.Repeat("a", i*37) // some requests are longer than the buffer
			res, err := api.State(ctx, &task.StateRequest{ID: id, ExecID: "b"})
			if err != nil || res.ID != id || res.ExecID != "b" {
				t.Errorf("State() = %v, %v", res, err)
			}
		})
	}
	wg.Wait()

	for _, tt := range []struct {
		name string
		call func() error
		code codes.Code
		text string
	}{
		{"an error with a code", func() error { _, err := api.Kill(ctx, &task.KillRequest{}); return err }, codes.NotFound, "no such thing: $PATH"},
		{"another error", func() error { _, err := api.Pause(ctx, &task.PauseRequest{}); return err }, codes.Unknown, "plain"},
		{"an unknown method", func() error { _, err := api.Resume(ctx, &task.ResumeRequest{}); return err }, codes.Unimplemented, "method Resume"},
		{"an unknown service", func() error {
			_, err := eventsapi.NewTTRPCEventsClient(c).Forward(ctx, &eventsapi.ForwardRequest{})
			return err
		}, codes.Unimplemented, "service containerd.services.events"},
		{"an answer that is too long", func() error { _, err := api.Pids(ctx, &task.PidsRequest{}); return err }, codes.ResourceExhausted, "allowed"},
	} {
		if err := tt.call(); status.Code(err) != tt.code || (err != nil && !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: error %v; want %v with %q", tt.name, err, tt.code, tt.text)
		}
	}
	c.Close()
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

func TestACallEndsWithItsTimeoutAndWithItsConnection(t *testing.T) {
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	s := echo()
	s.Methods["Wait"] = Method(func(ctx context.Context, _ *wire.ProcessRequest) (*wire.WaitResponse, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, &Error{Canceled, "over"}
	})
	conn, done := serve(t, s)
	c := ttrpc.NewClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := task.NewTTRPCTaskClient(c).Wait(ctx, &task.WaitRequest{}); err == nil {
		t.Error("Wait() succeeded")
	}
	<-began
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the request's context ended with %v", err)
	}
	go task.NewTTRPCTaskClient(c).Wait(context.Background(), &task.WaitRequest{ID: "x"})
	<-began
	c.Close()
	if err := <-done; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the request's context ended with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a request outlives its connection")
	}
}

// frame is one with any header.
func frame(length, stream uint32, kind byte, data []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(append(b, kind, 0), data...)
}

func requestFor(method string) []byte {
	return wire.Marshal(&request{service: taskService, method: method, body: &wire.ProcessRequest{ID: "i"}})
}

func TestBadFramesAreAnsweredAndDoNotEndTheConnection(t *testing.T) {
	state := requestFor("State")
	broken := wire.Marshal(&request{service: taskService, method: "State", payload: []byte{0xff}})
	good := func(stream uint32) []byte { return frame(uint32(len(state)), stream, typeRequest, state) }
	for _, tt := range []struct {
		name   string
		sent   []byte
		stream uint32 // of the answer; 0: there is none
		code   Code
	}{
		{"an even stream", frame(uint32(len(state)), 2, typeRequest, state), 2, InvalidArgument},
		{"data of no stream", frame(1, 5, typeData, []byte{0}), 5, InvalidArgument},
		{"a type that does not exist", frame(1, 7, 9, []byte{0}), 0, OK},
		{"a payload that is no message", frame(uint32(len(broken)), 13, typeRequest, broken), 13, Internal},
		{"a request that is none", frame(1, 9, typeRequest, []byte{0xff}), 9, InvalidArgument},
		{"a frame that is too long", frame(maxLength+1, 11, typeRequest, make([]byte, maxLength+1)), 11, ResourceExhausted},
		{"a stream for the second time", append(good(1), good(1)...), 1, InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conn, _ := serve(t, echo())
			go conn.Write(append(tt.sent, good(99)...))
			seen := map[uint32][]Code{}
			for len(seen[99]) == 0 || (tt.stream != 0 && len(seen[tt.stream]) == 0) || (tt.stream == 1 && len(seen[1]) < 2) {
				stream, code := readAnswer(t, conn)
				seen[stream] = append(seen[stream], code)
			}
			if seen[99][0] != OK {
				t.Errorf("the request after it: code %v", seen[99])
			}
			if tt.stream == 0 {
				return
			}
			for _, code := range seen[tt.stream] {
				if code == tt.code {
					return
				}
			}
			t.Errorf("codes %v; want %v", seen[tt.stream], tt.code)
		})
	}
}

func readAnswer(t *testing.T, conn net.Conn) (stream uint32, code Code) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	var b [headerSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, binary.BigEndian.Uint32(b[:]))
	if _, err := io.ReadFull(conn, data); err != nil {
		t.Fatal(err)
	}
	var res response
	if err := wire.Unmarshal(data, &res); err != nil || b[8] != typeResponse {
		t.Fatalf("type %d, %v", b[8], err)
	}
	if res.status != nil {
		code = Code(res.status.Code)
	}
	return binary.BigEndian.Uint32(b[4:]), code
}

type forwarder struct {
	got   []string
	refus error
}

func (f *forwarder) Forward(ctx context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	md, _ := ttrpc.GetMetadata(ctx)
	_, limited := ctx.Deadline()
	ns, _ := md.Get("containerd-namespace-ttrpc")
	f.got = append(f.got, r.Envelope.Topic, strings.Join(ns, ","))
	if !limited {
		return nil, errors.New("no deadline")
	}
	return &emptypb.Empty{}, f.refus
}

func TestContainerdsServerIsAsked(t *testing.T) {
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{}
	eventsapi.RegisterTTRPCEventsService(srv, f)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(context.Background(), l)
	t.Cleanup(func() { srv.Close() })
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(conn)
	forward := func() error {
		return c.Call("containerd.services.events.ttrpc.v1.Events", "Forward", "containerd-namespace-ttrpc", "ns",
			&wire.ForwardRequest{Envelope: wire.Pack(&wire.TaskOOM{ContainerID: "c"}, "ns", nil)}, 10*time.Second)
	}
	for range 3 {
		if err := forward(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(f.got, " "); got != "/tasks/oom ns /tasks/oom ns /tasks/oom ns" {
		t.Errorf("forwarded: %s", got)
	}
	f.refus = status.Error(codes.InvalidArgument, "no")
	var answer *Error
	if err := forward(); !errors.As(err, &answer) || answer.Code != InvalidArgument || answer.Text != "no" {
		t.Errorf("refused with %v", err)
	}
	srv.Close()
	if err := forward(); err == nil || errors.As(err, &answer) {
		t.Errorf("error of a broken connection: %v", err)
	}
}

func TestACallDoesNotWaitForEver(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	go io.Copy(io.Discard, there)
	err := NewClient(here).Call("s", "m", "k", "v", &wire.Empty{}, 20*time.Millisecond)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("Call() error = %v; want a timeout", err)
	}
}

// FuzzServe sends anything.
func FuzzServe(f *testing.F) {
	state := requestFor("State")
	f.Add(frame(uint32(len(state)), 1, typeRequest, state))
	f.Add(frame(3, 1, typeData, []byte("abc")))
	f.Add(frame(maxLength+1, 1, typeRequest, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := echo()
		delete(s.Methods, "Pids")
		if err := s.Serve(context.Background(), &script{Reader: bytes.NewReader(b)}); err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
}

// script is a connection whose other end does not listen.
type script struct{ io.Reader }

func (*script) Write(b []byte) (int, error) { return len(b), nil }
func (*script) Close() error                { return nil }
