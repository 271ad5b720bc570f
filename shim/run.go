package shim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Environment variables that containerd sets.
const (
	envTTRPC      = "TTRPC_ADDRESS"
	envMaxVersion = "MAX_SHIM_VERSION" // since 1.7
	envSchedCore  = "SCHED_CORE"
)

// envUnsealed tells the server why it runs from the installed file.
const envUnsealed = "IBEX_UNSEALED"

// flags are what containerd passes to every call of a shim.
type flags struct {
	namespace, id, address, bundle string
	socket, debugSocket            string
	debug, version, info           bool
	action                         string
}

// Run is the program: it does what the arguments say and returns the exit code.
// An error is written to stderr once, which containerd passes on to its caller.
func Run(args []string) int {
	if err := run(args, os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", RuntimeName, err)
		return 1
	}
	return 0
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := protect(); err != nil {
		return err
	}
	f, err := parseFlags(args)
	if err != nil {
		return err
	}
	switch {
	case f.version:
		return version(filepath.Base(args[0]), stdout)
	case f.info:
		return info(stdin, stdout)
	case f.namespace == "":
		return errors.New("-namespace is empty")
	case f.id == "":
		return errors.New("-id is empty")
	}
	if f.action != "" {
		// Whatever containerd's own parent left open is not for the server.
		if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return os.NewSyscallError("close_range", err)
		}
	}
	switch f.action {
	case "start":
		return start(f, stdin, stdout)
	case "delete":
		return deleteDead(f, stdout, stderr)
	case "":
		return serve(f)
	}
	return fmt.Errorf("unknown action %q", f.action)
}

// protect makes the process unreadable to those it will join in namespaces: no
// ptrace, and /proc/PID of root alone. Children inherit it until they execute a
// program. The kernel resets it at our own execve, so it comes first.
func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_DUMPABLE)", err)
	}
	return nil
}

func parseFlags(args []string) (flags, error) {
	var f flags
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	fs.StringVar(&f.namespace, "namespace", "", "containerd namespace of the container")
	fs.StringVar(&f.id, "id", "", "ID of the container")
	fs.StringVar(&f.address, "address", "", "gRPC address of containerd")
	fs.StringVar(&f.bundle, "bundle", "", "bundle to delete, if it is not the working directory")
	fs.StringVar(&f.socket, "socket", "", "path to listen on instead of the descriptor that start passes")
	fs.StringVar(&f.debugSocket, "debug-socket", "", "path on which each connection is sent a stack dump")
	fs.BoolVar(&f.debug, "debug", false, "log more")
	fs.BoolVar(&f.version, "v", false, "print the version")
	fs.BoolVar(&f.version, "version", false, "print the version")
	fs.BoolVar(&f.info, "info", false, "print what the runtime supports, as containerd asks for it")
	fs.String("publish-binary", "", "ignored: events go to $"+envTTRPC)
	if err := fs.Parse(args[1:]); err != nil {
		return f, err
	}
	f.action = fs.Arg(0)
	return f, nil
}
