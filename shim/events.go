package shim

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// forwardTimeout is for one try at delivering one event.
	forwardTimeout = 5 * time.Second
	// maxRefusals is how often containerd may refuse one event before it is
	// dropped. A connection that fails does not count.
	maxRefusals = 5
	// maxQueued bounds the queue while containerd is away. Exits do not count:
	// there is one for each process that ran.
	maxQueued = 4096
)

// publisher delivers events to containerd, in the order in which they were put
// in. It is safe for concurrent use.
//
// Its goroutine lives only while there is something to deliver, its connection
// until containerd goes away.
type publisher struct {
	namespace string
	dial      func() (net.Conn, error)
	backoff   func(try int) time.Duration // how long to wait before the next try

	mu      sync.Mutex
	queue   []*types.Envelope // guarded by mu
	plain   int               // guarded by mu: queued events that are not exits
	dropped int               // guarded by mu: since the queue was empty
	running bool              // guarded by mu
	idle    chan struct{}     // guarded by mu: closed when the queue is empty again
	stop    chan struct{}     // closed by close

	client *ttrpc.Client // owned by the goroutine
}

// newPublisher makes a publisher for containerd's event service at address, a
// path or unix:// URL.
func newPublisher(namespace, address string) *publisher {
	path := strings.TrimPrefix(address, "unix://")
	return &publisher{
		namespace: namespace,
		dial: func() (net.Conn, error) {
			return net.DialTimeout("unix", path, forwardTimeout)
		},
		backoff: func(try int) time.Duration { return min(time.Duration(try)*100*time.Millisecond, 2*time.Second) },
		stop:    make(chan struct{}),
	}
}

// topics has the name under which containerd passes on each event.
func topic(e proto.Message) string {
	switch e.(type) {
	case *apievents.TaskCreate:
		return "/tasks/create"
	case *apievents.TaskStart:
		return "/tasks/start"
	case *apievents.TaskOOM:
		return "/tasks/oom"
	case *apievents.TaskExit:
		return "/tasks/exit"
	case *apievents.TaskDelete:
		return "/tasks/delete"
	case *apievents.TaskExecAdded:
		return "/tasks/exec-added"
	case *apievents.TaskExecStarted:
		return "/tasks/exec-started"
	case *apievents.TaskPaused:
		return "/tasks/paused"
	case *apievents.TaskResumed:
		return "/tasks/resumed"
	}
	return "/tasks/?"
}

const exitTopic = "/tasks/exit"

// publish puts an event at the end of the queue. It never blocks.
func (p *publisher) publish(e proto.Message) {
	a, err := pack(e)
	if err != nil {
		log.L.WithError(err).Error("encode event")
		return
	}
	env := &types.Envelope{Timestamp: timestamppb.Now(), Namespace: p.namespace, Topic: topic(e), Event: a}
	p.mu.Lock()
	defer p.mu.Unlock()
	if env.Topic != exitTopic {
		if p.plain >= maxQueued {
			p.dropOldest()
		}
		p.plain++
	}
	p.queue = append(p.queue, env)
	if !p.running {
		p.running = true
		p.idle = make(chan struct{})
		go p.run()
	}
}

// dropOldest is called with mu held, when containerd has been away for so long
// that the queue is full. The head may be on its way already and stays.
func (p *publisher) dropOldest() {
	for i := 1; i < len(p.queue); i++ {
		if t := p.queue[i].Topic; t != exitTopic {
			if p.dropped++; p.dropped == 1 {
				log.L.WithField("topic", t).Warn("containerd is away and the queue is full: dropping events other than exits")
			}
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			p.plain--
			return
		}
	}
}

// run delivers until the queue is empty.
func (p *publisher) run() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || p.stopped() {
			if p.dropped > 0 {
				log.L.Warnf("%d events were dropped", p.dropped)
			}
			p.queue, p.dropped = nil, 0 // the array behind it, too
			p.running = false
			close(p.idle)
			p.mu.Unlock()
			return
		}
		e := p.queue[0]
		p.mu.Unlock()

		p.deliver(e)

		p.mu.Lock()
		p.queue = p.queue[1:]
		if e.Topic != exitTopic {
			p.plain--
		}
		p.mu.Unlock()
	}
}

func (p *publisher) stopped() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// deliver tries until the event has been taken, was refused maxRefusals times,
// or the publisher is closed.
func (p *publisher) deliver(e *types.Envelope) {
	refusals := 0
	for try := 1; ; try++ {
		err := p.forward(e)
		if err == nil {
			return
		}
		if refused(err) {
			if refusals++; refusals >= maxRefusals {
				log.L.WithError(err).WithField("topic", e.Topic).Error("event dropped: containerd refuses it")
				return
			}
		}
		if try == 1 {
			log.L.WithError(err).WithField("topic", e.Topic).Debug("event not delivered yet")
		}
		t := time.NewTimer(p.backoff(try))
		select {
		case <-t.C:
		case <-p.stop:
			t.Stop()
			return
		}
	}
}

// refused tells an answer of containerd's from a connection that failed.
func refused(err error) bool {
	s, ok := status.FromError(err)
	if !ok || errors.Is(err, ttrpc.ErrClosed) {
		return false
	}
	switch s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// forward makes one try, two if the connection turns out to be an old one.
func (p *publisher) forward(e *types.Envelope) error {
	for fresh := p.client == nil; ; fresh = true {
		if p.client == nil {
			conn, err := p.dial()
			if err != nil {
				return err
			}
			p.client = ttrpc.NewClient(conn)
		}
		ctx, cancel := context.WithTimeout(context.Background(), forwardTimeout)
		ctx = ttrpc.WithMetadata(ctx, ttrpc.MD{"containerd-namespace-ttrpc": {p.namespace}})
		_, err := eventsapi.NewTTRPCEventsClient(p.client).Forward(ctx, &eventsapi.ForwardRequest{Envelope: e})
		cancel()
		if err == nil || refused(err) {
			return err
		}
		p.client.Close() //nolint:errcheck // it is broken
		p.client = nil
		if fresh {
			return err
		}
	}
}

// flush waits until the queue is empty, or for ctx.
func (p *publisher) flush(ctx context.Context) {
	p.mu.Lock()
	idle, running := p.idle, p.running
	p.mu.Unlock()
	if !running {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close gives up what is still queued. It is called once.
func (p *publisher) close() { close(p.stop) }

// pack wraps a message as containerd's typeurl does: the type URL is the bare
// name, without a host.
func pack(m proto.Message) (*anypb.Any, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: b}, nil
}
