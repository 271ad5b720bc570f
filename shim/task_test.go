package shim

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/shim/wire"
)

func TestAnExitWaitsForTheEventOfItsStart(t *testing.T) {
	pub, d := testPublisher(t)
	d.start(t)
	tk := newTask("c1", "/b", pub)
	init, err := tk.reserve("", ioSpec{}, ioOwner{})
	if err != nil {
		t.Fatal(err)
	}
	init.settle(true, &wire.TaskCreate{ContainerID: "c1"})
	init.settle(false, nil)           // Start is under way
	tk.onExit(new(container.Process)) // and the process has ended already
	select {
	case <-init.exited:
		t.Error("the exit was announced before the start")
	default:
	}
	init.settle(true, &wire.TaskStart{ContainerID: "c1"})
	waitDone(t, "exit", init.exited)
	flushed(t, pub)
	if got, want := fmt.Sprint(d.seen()), "[/tasks/create /tasks/start /tasks/exit]"; got != want {
		t.Errorf("events = %s; want %s", got, want)
	}
}

func TestTheExitOfTheFirstProcessWaitsForThatOfAnExec(t *testing.T) {
	pub, d := testPublisher(t)
	d.start(t)
	tk := newTask("c1", "/b", pub)
	init, err := tk.reserve("", ioSpec{}, ioOwner{})
	if err != nil {
		t.Fatal(err)
	}
	init.settle(true, &wire.TaskCreate{})
	exec, err := tk.reserve("e", ioSpec{}, ioOwner{})
	if err != nil {
		t.Fatal(err)
	}
	// The container reports the exec first; its Start has not returned yet.
	exec.p = new(container.Process)
	tk.exits = append(tk.exits, exec)
	tk.onExit(new(container.Process))
	flushed(t, pub)
	if got := fmt.Sprint(d.seen()); got != "[/tasks/create]" {
		t.Errorf("events before the start of the exec = %s", got)
	}
	exec.settle(true, &wire.TaskExecStarted{})
	waitDone(t, "exit of the exec", exec.exited)
	waitDone(t, "exit of the first process", init.exited)
	flushed(t, pub)
	if got, want := fmt.Sprint(d.seen()), "[/tasks/create /tasks/exec-started /tasks/exit /tasks/exit]"; got != want {
		t.Errorf("events = %s; want %s", got, want)
	}
}

func TestAnExecIDIsTakenFromItsReservationOn(t *testing.T) {
	pub, _ := testPublisher(t)
	tk := newTask("c1", "/b", pub)
	p, err := tk.reserve("e", ioSpec{}, ioOwner{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tk.reserve("e", ioSpec{}, ioOwner{}); !errors.Is(err, errExists) {
		t.Errorf("second reservation: %v; want %v", err, errExists)
	}
	if _, err := p.handle(); !errors.Is(err, errNotFound) {
		t.Errorf("a process that the container does not know yet: %v; want %v", err, errNotFound)
	}
	tk.forget(p)
	if _, err := tk.reserve("e", ioSpec{}, ioOwner{}); err != nil {
		t.Errorf("reservation after the first was given up: %v", err)
	}
}

func TestWaitersAreLetGoWhenAProcessIsDeletedUnstarted(t *testing.T) {
	pub, _ := testPublisher(t)
	tk := newTask("c1", "/b", pub)
	p, err := tk.reserve("e", ioSpec{}, ioOwner{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := p.wait(context.Background())
		got <- err
	}()
	p.release()
	p.release() // twice is once
	if err := <-got; !errors.Is(err, errNotFound) {
		t.Errorf("wait = %v; want %v", err, errNotFound)
	}
}
