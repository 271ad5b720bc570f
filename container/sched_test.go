package container_test

import (
	"context"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

func TestResetOnForkOutlastsTheForkOfAnExec(t *testing.T) {
	b := newBundle(t, "sleep", "1000")
	c := b.start()
	p := *b.spec.Process
	p.Args = []string{"sleep", "1000"}
	p.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 7, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}}
	e, err := c.Exec("e", &p, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(context.Background(), container.Stdio{}); err != nil {
		t.Fatal(err)
	}
	got, err := unix.SchedGetAttr(e.PID(), 0)
	if err != nil || got.Policy != unix.SCHED_BATCH || got.Nice != 7 || got.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 {
		t.Errorf("%+v %v", got, err)
	}
	if err := e.Kill(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-e.Done()
}
