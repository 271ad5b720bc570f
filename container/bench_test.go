package container_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

func BenchmarkExecTrue(b *testing.B) {
	bd := newBundle(b, "sleep", "1000")
	c := bd.start()
	spec := *bd.spec.Process
	spec.Args = []string{"true"}
	for i := 0; b.Loop(); i++ {
		p, err := c.Exec(fmt.Sprint("e", i), &spec, false)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Start(context.Background(), container.Stdio{}); err != nil {
			b.Fatal(err)
		}
		<-p.Done()
		<-bd.exit
		if err := p.Delete(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecMissing(b *testing.B) {
	bd := newBundle(b, "sleep", "1000")
	c := bd.start()
	spec := *bd.spec.Process
	spec.Args = []string{"nope"}
	for i := 0; b.Loop(); i++ {
		p, err := c.Exec(fmt.Sprint("e", i), &spec, false)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Start(context.Background(), container.Stdio{}); err == nil {
			b.Fatal("found")
		}
		if err := p.Delete(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateStartExitDelete(b *testing.B) {
	bd := newBundle(b, "true")
	bd.config()
	for b.Loop() {
		c, err := container.Create(context.Background(), container.CreateOptions{ID: bd.id, Bundle: bd.dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Init().Start(context.Background(), container.Stdio{}); err != nil {
			b.Fatal(err)
		}
		<-c.Init().Done()
		if err := c.Delete(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateOnly(b *testing.B) {
	bd := newBundle(b, "true")
	bd.config()
	for b.Loop() {
		c, err := container.Create(context.Background(), container.CreateOptions{ID: bd.id, Bundle: bd.dir})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Init().Kill(unix.SIGKILL)
		<-c.Init().Done()
		if err := c.Delete(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
