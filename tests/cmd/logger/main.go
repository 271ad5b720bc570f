// Logger is a binary logger as containerd's shims start it for an output of
// binary://: it copies standard output and error of a container to files.
//
//	logger?dir=DIR          copies to DIR/stdout and DIR/stderr
//	logger?dir=DIR&slow=1   waits at the end of its input before it ends
//
// Arguments of the URL come as KEY VALUE pairs. Descriptors 3 and 4 are the
// streams. A byte on 5 and its closing say that the logger is ready; binary://
// looks at the closing only. SIGTERM, which a shim sends when it has no more,
// does not keep the logger from reading to the end.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "logger:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	signal.Ignore(syscall.SIGTERM)
	options := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		options[args[i]] = args[i+1]
	}
	dir := options["dir"]
	names := os.Getenv("CONTAINER_NAMESPACE") + "/" + os.Getenv("CONTAINER_ID")
	if err := os.WriteFile(filepath.Join(dir, "names"), []byte(names), 0o600); err != nil {
		return err
	}
	ready := os.NewFile(5, "ready")
	done := make(chan error)
	for fd, name := range map[uintptr]string{3: "stdout", 4: "stderr"} {
		in := os.NewFile(fd, name)
		out, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		go func() {
			_, err := io.Copy(out, in)
			done <- errors.Join(err, out.Close())
		}()
	}
	if _, err := ready.Write([]byte{0}); err != nil {
		return err
	}
	if err := ready.Close(); err != nil {
		return err
	}
	err := errors.Join(<-done, <-done)
	if options["slow"] != "" {
		time.Sleep(500 * time.Millisecond)
	}
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		return err
	}
	return err
}
