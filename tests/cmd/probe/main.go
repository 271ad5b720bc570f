// Probe runs in test containers and says what a process there is and may do.
//
//	probe state           one JSON object about the process itself
//	probe hold BYTES      touch that much memory, print "holding", wait for a signal
//	probe eat             touch memory until the kernel ends it
//	probe signals         print "ready", then a line for every signal; end at SIGQUIT
//	probe lines N         N numbered lines of 64 bytes on standard output
//	probe try             which privileged calls succeed, one a line
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no verb")
	}
	switch verb := args[0]; {
	case verb == "state":
		return state()
	case verb == "hold" && len(args) == 2:
		return hold(args[1])
	case verb == "eat":
		return eat()
	case verb == "signals":
		return signals()
	case verb == "lines" && len(args) == 2:
		return lines(args[1])
	case verb == "try":
		return try()
	default:
		return fmt.Errorf("unknown verb %q with %d arguments", verb, len(args)-1)
	}
}

// touched makes n bytes of memory that the kernel has really given.
func touched(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	return b, nil
}

func hold(arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	b, err := touched(n)
	if err != nil {
		return err
	}
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGTERM)
	fmt.Println("holding")
	<-ch
	return unix.Munmap(b)
}

func eat() error {
	for {
		if _, err := touched(1 << 20); err != nil {
			return err
		}
	}
}

func signals() error {
	ch := make(chan os.Signal, 128)
	signal.Notify(ch)
	fmt.Println("ready")
	for s := range ch {
		n, ok := s.(syscall.Signal)
		// The Go runtime interrupts its own threads with SIGURG.
		if !ok || n == syscall.SIGURG || n == syscall.SIGCHLD {
			continue
		}
		fmt.Printf("signal %d\n", int(n))
		if n == syscall.SIGQUIT {
			return nil
		}
	}
	return nil
}

func lines(arg string) error {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(os.Stdout, 4096)
	pad := strings.Repeat(".", 52)
	for i := range n {
		if _, err := fmt.Fprintf(w, "%010d %s\n", i, pad); err != nil {
			return err
		}
	}
	return w.Flush()
}
