package shim

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ibex-run/ibex/internal/nodeconf"
)

// Annotations of a container that go before its runtime options.
const (
	overflowAnnotation = "io.ibex.log-overflow"
	spoolAnnotation    = "io.ibex.log-spool"
)

// overflow lets a process write on although nobody reads: what its reader does
// not take is kept, up to limit bytes, and what comes after that is dropped. When
// the reader is back it finds what was kept, then a line with the number of bytes
// that are missing there, then what comes next.
//
// Once something was dropped everything is, until the reader has taken all that
// was kept: there is one gap at a time, and the line stands where it is.
type overflow struct {
	limit int
	warn  func(dropped int64) // told of each gap; must not block

	// The rest is guarded by the stream's mu.

	on      bool   // the sink is full
	kept    []byte // for the sink, before anything that is read from now on
	dropped int64  // bytes since the last gap
	ended   bool   // the source has ended
}

// overflowOf is what the options and annotations say: nil to block.
func overflowOf(o options, annotations map[string]string) (*overflow, error) {
	policy, size := o.LogOverflow, o.LogSpool
	if v, ok := annotations[overflowAnnotation]; ok {
		if err := nodeconf.CheckOverflow(v); err != nil || v == "" {
			return nil, fmt.Errorf("annotation %s: %q: want block or drop: %w", overflowAnnotation, v, errInvalid)
		}
		policy = v
	}
	if v, ok := annotations[spoolAnnotation]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			err = nodeconf.CheckSpool(n)
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %q: want at most %d bytes: %w", spoolAnnotation, v, nodeconf.MaxSpool, errInvalid)
		}
		size = n
	}
	if policy != nodeconf.OverflowDrop {
		return nil, nil
	}
	if size == 0 {
		size = nodeconf.DefaultSpool
	}
	return &overflow{limit: int(size)}, nil
}

// begin keeps what was read for a sink that has no room.
func (o *overflow) begin(pending []byte) {
	o.on = true
	o.kept = append(o.kept, pending...)
}

// gap is the line that stands for what was dropped.
func gap(n int64) []byte {
	return fmt.Appendf(nil, "\n[ibex: %d bytes of output dropped here, which nobody read in time]\n", n)
}

// take keeps or drops bytes of the source.
func (o *overflow) take(b []byte) {
	keep := 0
	if o.dropped == 0 {
		keep = min(len(b), max(0, o.limit-len(o.kept)))
	}
	o.kept = append(o.kept, b[:keep]...)
	o.dropped += int64(len(b) - keep)
}

// deliver writes what was kept, and the line after it. It is done when all is out.
func (o *overflow) deliver(fd int) (done bool, err error) {
	for {
		n, err := writeSome(fd, o.kept)
		o.kept = o.kept[n:]
		if err != nil {
			return false, err
		}
		if o.dropped == 0 {
			o.on, o.kept = false, nil
			return true, nil
		}
		if o.warn != nil {
			o.warn(o.dropped)
		}
		o.kept, o.dropped = gap(o.dropped), 0
	}
}

// spoolLocked serves a stream whose sink is full: it empties what was kept and
// reads on. The stream goes on as others do when the result is true.
func (s *stream) spoolLocked() (goOn bool) {
	o := s.over
	done, err := o.deliver(s.dst)
	switch {
	case done && o.ended:
		s.closeAll()
		return false
	case done:
		return true
	case !errors.Is(err, errSinkFull):
		o.on, o.kept, o.dropped = false, nil, 0
		if o.ended {
			s.closeAll()
			return false
		}
		s.closeSink()
		s.armSource()
		return false
	}
	s.readOn()
	return false
}

// readOn reads some of what is there and waits for more, and for the sink.
func (s *stream) readOn() {
	if !s.over.ended {
		s.readSome()
	}
	if s.armSink() != nil {
		s.closeAll()
		return
	}
	if !s.over.ended {
		s.armSource()
	}
}

func (s *stream) readSome() {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for moved := 0; moved < chunk; {
		size := s.room(len(*buf))
		if size == 0 {
			return
		}
		n, err := readSource(s.src, (*buf)[:size])
		if errors.Is(err, errSourceEnd) {
			s.over.ended = true
		}
		if err != nil {
			return
		}
		if s.finish {
			s.left -= n
		}
		s.over.take((*buf)[:n])
		moved += n
	}
}

// useOverflow gives each stream of output a spool of its own. It comes before
// started.
func (p *processIO) useOverflow(o *overflow) { p.over = o }

// spoolOutput is called with mu held, before anything is copied. What goes to a
// file never waits for a reader.
func (p *processIO) spoolOutput() {
	if p.over == nil {
		return
	}
	for _, s := range p.out {
		if !s.blocking && s.dst >= 0 {
			o := *p.over
			s.over = &o
		}
	}
}
