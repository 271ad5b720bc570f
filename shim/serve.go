package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/exeseal"
)

const (
	// flushTimeout is for the last events after a Shutdown.
	flushTimeout = 5 * time.Second
	// goodbyeTimeout is how long the answers to the last requests may take.
	goodbyeTimeout = 200 * time.Millisecond
)

// serve is the shim itself: it answers on its socket until it is shut down.
func serve(f flags) error {
	tune()
	if err := openLog("log", f.debug); err != nil {
		return err
	}
	if err := setUp(); err != nil {
		log.L.WithError(err).Error("set up")
		return err
	}
	l, err := listener(f)
	if err != nil {
		log.L.WithError(err).Error("listen")
		return err
	}
	// The bundle belongs to the first container, the shim to all of the pod.
	if err := os.Chdir("/"); err != nil {
		return err
	}
	address := os.Getenv(envTTRPC)
	if address == "" {
		address = f.address + ".ttrpc"
	}
	svc := newService(f.namespace, newPublisher(f.namespace, address))
	watchSignals(svc)
	if f.debugSocket != "" {
		if err := serveDebug(f.debugSocket); err != nil {
			return err
		}
	}
	if err := svc.serve(l); err != nil {
		log.L.WithError(err).Error("serve")
		return err
	}
	return nil
}

// setUp prepares the process for being the parent of containers.
func setUp() error {
	if err := exeseal.SetName(); err != nil {
		return err
	}
	if why := os.Getenv(envUnsealed); why != "" {
		log.L.Warnf("this shim runs from the installed file, not from a sealed one: %s", why)
	}
	unix.Umask(0o022)
	// A host that cannot run containers is no reason to go: Create answers with
	// the same error, which reaches whoever asked.
	if err := container.Setup(true); err != nil {
		log.L.WithError(err).Error("this host cannot run containers")
	}
	return nil
}

func listener(f flags) (*net.UnixListener, error) {
	if f.socket == "" {
		return inheritListener(os.NewFile(listenerFD, "descriptor 3"))
	}
	s, err := claimSocket(f.socket)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("socket %s: in use", f.socket)
	}
	return inheritListener(s.file)
}

// unusedTimeout is how long a shim waits for its first Create, which containerd
// sends as soon as start has answered. If start was killed before it could, nobody
// knows of this shim. A variable for the tests.
var unusedTimeout = 10 * time.Second

func (s *service) stopUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.used {
		log.L.Warn("nobody has created a container: ending")
		s.stopLocked()
	}
}

// serve answers until Shutdown or a signal.
func (s *service) serve(l *net.UnixListener) error {
	conns := newConnections()
	defer time.AfterFunc(unusedTimeout, s.stopUnused).Stop()
	failed := make(chan error, 1)
	go func() { failed <- conns.accept(l, s.server()) }()
	select {
	case err := <-failed:
		return err
	case <-s.stop:
	}
	path := l.Addr().String()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.L.WithError(err).Warn("remove socket")
	}
	l.Close() //nolint:errcheck // a socket that nobody can reach any more
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	conns.hangUp()
	s.events.flush(ctx)
	s.events.close()
	conns.wait(goodbyeTimeout)
	return nil
}

// watchSignals ends the shim on SIGTERM and SIGINT, containers or not: who asks
// for that cleans up after it. SIGPIPE is caught so that it kills nobody, and
// not ignored, which containers would inherit.
func watchSignals(s *service) {
	ch := make(chan os.Signal, 8)
	signal.Notify(ch, unix.SIGTERM, unix.SIGINT, unix.SIGPIPE, unix.SIGUSR1)
	go func() {
		for sig := range ch {
			switch sig {
			case unix.SIGUSR1:
				log.L.Infof("=== BEGIN goroutine stack dump ===\n%s\n=== END goroutine stack dump ===", stacks())
				log.L.Info(memoryUse())
			case unix.SIGTERM, unix.SIGINT:
				log.L.WithField("signal", sig).Info("ending on signal")
				s.mu.Lock()
				s.stopLocked()
				s.mu.Unlock()
			}
		}
	}()
}

// stacks is a dump of all goroutines.
func stacks() []byte {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return buf[:n]
		}
	}
}

// memoryUse is where the Go runtime's memory goes, in KiB.
func memoryUse() string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("memory in KiB: heap %d in use, %d idle, %d released, stacks %d, spans %d, caches %d, profiling %d, collector %d, other %d; %d collections",
		m.HeapInuse>>10, m.HeapIdle>>10, m.HeapReleased>>10, m.StackInuse>>10, m.MSpanSys>>10, m.MCacheSys>>10,
		m.BuckHashSys>>10, m.GCSys>>10, m.OtherSys>>10, m.NumGC)
}

// serveDebug sends a stack dump to whoever connects.
func serveDebug(path string) error {
	s, err := claimSocket(path)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("socket %s: in use", path)
	}
	l, err := inheritListener(s.file)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write(stacks()) //nolint:errcheck // the reader went away
			c.Close()
		}
	}()
	return nil
}
