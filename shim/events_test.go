package shim

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ibex-run/ibex/shim/wire"
)

// daemon is containerd's event service.
type daemon struct {
	path   string
	mu     sync.Mutex
	topics []string
	refuse string // this topic gets an error
	life   *life  // guarded by mu
	srv    *ttrpc.Server
}

// life is the daemon from a start to its end. A server that was closed may still
// answer what it has read before.
type life struct{ d *daemon }

func (l *life) Forward(_ context.Context, r *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life != l {
		return nil, status.Error(codes.Unavailable, "this daemon has ended")
	}
	if r.Envelope.Namespace != "ns" {
		return nil, fmt.Errorf("namespace %q", r.Envelope.Namespace)
	}
	d.topics = append(d.topics, r.Envelope.Topic)
	if r.Envelope.Topic == d.refuse {
		return nil, status.Error(codes.InvalidArgument, "refused")
	}
	return &emptypb.Empty{}, nil
}

func (d *daemon) start(t *testing.T) {
	t.Helper()
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	now := &life{d}
	d.mu.Lock()
	d.life = now
	d.mu.Unlock()
	eventsapi.RegisterTTRPCEventsService(srv, now)
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.srv = srv
	go srv.Serve(context.Background(), l)
	t.Cleanup(func() { srv.Close() })
}

func (d *daemon) end() {
	d.mu.Lock()
	d.life = nil
	d.mu.Unlock()
	d.srv.Close()
}

func (d *daemon) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.topics...)
}

func testPublisher(t *testing.T) (*publisher, *daemon) {
	d := &daemon{path: filepath.Join(t.TempDir(), "ttrpc")}
	p := newPublisher("ns", "unix://"+d.path)
	p.backoff = func(int) time.Duration { return time.Millisecond }
	return p, d
}

func flushed(t *testing.T, p *publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	p.flush(ctx)
	if ctx.Err() != nil {
		t.Fatal("events were not delivered")
	}
}

func TestEventsArriveInOrderThroughARestartOfContainerd(t *testing.T) {
	p, d := testPublisher(t)
	p.publish(&wire.TaskCreate{}) // nobody listens yet
	d.start(t)
	p.publish(&wire.TaskStart{})
	flushed(t, p)
	d.end()
	p.publish(&wire.TaskOOM{})
	p.publish(&wire.TaskExit{})
	d.start(t)
	p.publish(&wire.TaskDelete{})
	flushed(t, p)
	want := "[/tasks/create /tasks/start /tasks/oom /tasks/exit /tasks/delete]"
	if got := fmt.Sprint(d.seen()); got != want {
		t.Errorf("events = %s; want %s", got, want)
	}
}

func TestARefusedEventDoesNotBlockTheNext(t *testing.T) {
	p, d := testPublisher(t)
	d.refuse = "/tasks/oom"
	d.start(t)
	p.publish(&wire.TaskOOM{})
	p.publish(&wire.TaskExit{})
	flushed(t, p)
	got := d.seen()
	if len(got) != maxRefusals+1 || got[len(got)-1] != "/tasks/exit" {
		t.Errorf("events = %v; want %d tries and the exit", got, maxRefusals)
	}
}

func TestAFullQueueKeepsExits(t *testing.T) {
	p, d := testPublisher(t)
	for range 10 {
		p.publish(&wire.TaskExit{})
		for range maxQueued / 5 {
			p.publish(&wire.TaskExecAdded{})
		}
	}
	d.start(t)
	flushed(t, p)
	exits, plain := 0, 0
	for _, topic := range d.seen() {
		if topic == wire.ExitTopic {
			exits++
		} else {
			plain++
		}
	}
	if exits != 10 || plain > maxQueued {
		t.Errorf("%d exits and %d others arrived; want 10 and at most %d", exits, plain, maxQueued)
	}
}

func TestAClosedPublisherLetsGo(t *testing.T) {
	p, _ := testPublisher(t)
	p.publish(&wire.TaskExit{})
	p.close()
	flushed(t, p)
}
