package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/typeurl/v2"

	"github.com/ibex-run/ibex/internal/ktest"
	"github.com/ibex-run/ibex/tests/integration/ctd"
)

// event is a task event in short: "create", "start", "exit 0",
// "exec-started e", "exit e 0", "oom", ...
type event struct {
	container string
	text      string
	pid       uint32
}

// recorder keeps the task events of all daemons in the order of arrival.
type recorder struct {
	mu   sync.Mutex
	list []event
}

var events recorder

// follow records a daemon's events from now on until it stops. It returns once
// they arrive.
func (r *recorder) follow(d *ctd.Daemon) {
	ch, errs := d.Client.EventService().Subscribe(d.Context(context.Background()), `topic~="^/tasks/"`)
	go func() {
		for {
			select {
			case <-errs:
				return
			case e, ok := <-ch:
				if !ok {
					return
				}
				if v, err := typeurl.UnmarshalAny(e.Event); err == nil {
					r.add(shorten(v))
				}
			}
		}
	}()
}

func (r *recorder) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

// shorten makes one of our events of containerd's.
func shorten(v any) event {
	switch e := v.(type) {
	case *apievents.TaskCreate:
		return event{e.ContainerID, "create", e.Pid}
	case *apievents.TaskStart:
		return event{e.ContainerID, "start", e.Pid}
	case *apievents.TaskExecAdded:
		return event{e.ContainerID, "exec-added " + e.ExecID, 0}
	case *apievents.TaskExecStarted:
		return event{e.ContainerID, "exec-started " + e.ExecID, e.Pid}
	case *apievents.TaskExit:
		if e.ID != e.ContainerID {
			return event{e.ContainerID, fmt.Sprintf("exit %s %d", e.ID, e.ExitStatus), e.Pid}
		}
		return event{e.ContainerID, fmt.Sprintf("exit %d", e.ExitStatus), e.Pid}
	case *apievents.TaskOOM:
		return event{e.ContainerID, "oom", 0}
	case *apievents.TaskPaused:
		return event{e.ContainerID, "paused", 0}
	case *apievents.TaskResumed:
		return event{e.ContainerID, "resumed", 0}
	case *apievents.TaskDelete:
		return event{e.ContainerID, strings.TrimSpace("delete " + e.ID), e.Pid}
	default:
		return event{"", fmt.Sprintf("%T", v), 0}
	}
}

// of lists the texts of a container's events. The delete event comes from
// containerd and names no process.
func (r *recorder) of(id string) (texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.list {
		if e.container == id {
			texts = append(texts, e.text)
		}
	}
	return texts
}

// wait waits for an event and returns all up to then.
func (r *recorder) wait(t *testing.T, id, text string) []string {
	t.Helper()
	var all []string
	ktest.Eventually(t, 20*time.Second, fmt.Sprintf("event %q of %s", text, id), func() error {
		all = r.of(id)
		if count(all, text) == 0 {
			return fmt.Errorf("have %q", all)
		}
		return nil
	})
	return all
}

// waitAny waits for n events that begin so.
func (r *recorder) waitAny(t *testing.T, id, prefix string, n int) {
	t.Helper()
	ktest.Eventually(t, prompt, fmt.Sprintf("%d events %q of %s", n, prefix, id), func() error {
		have := 0
		for _, e := range r.of(id) {
			if strings.HasPrefix(e, prefix) {
				have++
			}
		}
		if have < n {
			return fmt.Errorf("have %d", have)
		}
		return nil
	})
}

func count(list []string, text string) (n int) {
	for _, l := range list {
		if l == text {
			n++
		}
	}
	return n
}

// wantOrder fails the test unless each text comes once, in this order; others
// may come between.
func wantOrder(t *testing.T, have []string, texts ...string) {
	t.Helper()
	at := -1
	for _, text := range texts {
		found := -1
		for i, h := range have {
			if h == text {
				if found >= 0 {
					t.Errorf("event %q came twice in %q", text, have)
				}
				found = i
			}
		}
		if found < 0 {
			t.Errorf("no event %q in %q", text, have)
		} else if found < at {
			t.Errorf("event %q came too early in %q", text, have)
		}
		at = max(at, found)
	}
}
