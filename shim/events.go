package shim

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/containerd/log"

	"github.com/ibex-run/ibex/shim/rpc"
	"github.com/ibex-run/ibex/shim/wire"
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
	queue   []*wire.Envelope // guarded by mu
	plain   int              // guarded by mu: queued events that are not exits
	dropped int              // guarded by mu: since the queue was empty
	running bool             // guarded by mu
	idle    chan struct{}    // guarded by mu: closed when the queue is empty again
	stop    chan struct{}    // closed by close

	client *rpc.Client // owned by the goroutine
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

// publish puts an event at the end of the queue. It never blocks.
func (p *publisher) publish(e wire.Event) {
	env := wire.Pack(e, p.namespace, wire.NewTimestamp(time.Now()))
	p.mu.Lock()
	defer p.mu.Unlock()
	if env.Topic != wire.ExitTopic {
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
		if t := p.queue[i].Topic; t != wire.ExitTopic {
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
		if e.Topic != wire.ExitTopic {
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
func (p *publisher) deliver(e *wire.Envelope) {
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
	var answer *rpc.Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code {
	case rpc.Unavailable, rpc.DeadlineExceeded, rpc.Canceled:
		return false
	}
	return true
}

// forward makes one try, two if the connection turns out to be an old one.
func (p *publisher) forward(e *wire.Envelope) error {
	for fresh := p.client == nil; ; fresh = true {
		if p.client == nil {
			conn, err := p.dial()
			if err != nil {
				return err
			}
			p.client = rpc.NewClient(conn)
		}
		err := p.client.Call("containerd.services.events.ttrpc.v1.Events", "Forward",
			"containerd-namespace-ttrpc", p.namespace, &wire.ForwardRequest{Envelope: e}, forwardTimeout)
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
