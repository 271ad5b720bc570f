package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

// createFlags are those of create and run.
type createFlags struct {
	bundle, console, pidFile string
	noPivot, noNewKeyring    bool
	preserveFDs              int
	detach, keep             bool
}

func (f *createFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.bundle, "bundle", "b", "", "directory of the bundle (default: the present one)")
	fl.StringVar(&f.console, "console-socket", "", "unix socket that gets the terminal's master side")
	fl.StringVar(&f.pidFile, "pid-file", "", "file for the first process's PID")
	fl.BoolVar(&f.noPivot, "no-pivot", false, "refused: the root is always entered with pivot_root")
	fl.BoolVar(&f.noNewKeyring, "no-new-keyring", false, "keep the caller's session keyring")
	fl.IntVar(&f.preserveFDs, "preserve-fds", 0, "pass this many further descriptors on")
}

func createCmd(o *options) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "create [flags] ID", Short: "Create a container", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.create(cmd.Context(), o, args[0], true)
			if err == nil {
				c.Close()
			}
			return err
		},
	}
	f.add(cmd)
	return cmd
}

func runCmd(o *options) *cobra.Command {
	var f createFlags
	cmd := &cobra.Command{
		Use: "run [flags] ID", Short: "Create and start a container", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), o, args[0])
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "do not wait for the container's end")
	cmd.Flags().BoolVar(&f.keep, "keep", false, "do not delete the container when it ends")
	return cmd
}

// create creates the container. The caller's own standard streams become the
// container's, unless it has a terminal.
func (f *createFlags) create(ctx context.Context, o *options, id string, detached bool) (*container.Container, error) {
	if f.noPivot {
		return nil, errors.New("--no-pivot: not supported: exec could leave such a root")
	}
	bundle, err := filepath.Abs(f.bundle)
	if err != nil {
		return nil, err
	}
	dir, err := o.dir(id)
	if err != nil {
		return nil, err
	}
	terminal, err := container.WantsTerminal(bundle)
	if err != nil {
		return nil, err
	}
	if detached && terminal != (f.console != "") {
		return nil, errors.New("--console-socket: needed exactly if process.terminal is true and the container is detached")
	}
	if err := os.Mkdir(dir, 0o711); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("container with ID %q already exists", id)
	} else if err != nil {
		return nil, err
	}
	c, err := container.Create(ctx, container.CreateOptions{
		ID: id, Bundle: bundle, StateDir: dir, Detached: true, Terminal: terminal, NoNewKeyring: f.noNewKeyring,
		Stdio:     container.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
		OnWarning: func(err error) { fmt.Fprintln(os.Stderr, "ibex: warning:", err) },
	})
	if err != nil {
		os.Remove(dir) //nolint:errcheck // the error that counts is that of Create
		return nil, err
	}
	if err := f.handOver(c); err != nil {
		c.Delete(ctx)  //nolint:errcheck // the error that counts is that of handing over
		os.Remove(dir) //nolint:errcheck // as above
		return nil, err
	}
	return c, nil
}

// handOver gives the caller what it asked for of the new container.
func (f *createFlags) handOver(c *container.Container) error {
	if f.pidFile != "" {
		if err := writePID(f.pidFile, c.Init().PID()); err != nil {
			return err
		}
	}
	if m := c.Init().Console(); m != nil && f.console != "" {
		return sendConsole(f.console, m)
	}
	return nil
}

func writePID(name string, pid int) error {
	tmp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name))
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// sendConsole sends a terminal's master side over a unix socket.
func sendConsole(socket string, master *os.File) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return fmt.Errorf("console socket %s: %w", socket, os.NewSyscallError("connect", err))
	}
	// The name goes along as data, as receivers expect.
	err = unix.Sendmsg(fd, []byte(master.Name()), unix.UnixRights(int(master.Fd())), nil, 0)
	return os.NewSyscallError("sendmsg", err)
}

func (f *createFlags) run(ctx context.Context, o *options, id string) error {
	c, err := f.create(ctx, o, id, f.detach)
	if err != nil {
		return err
	}
	dir, _ := o.dir(id)
	remove := func() {
		c.Kill(ctx, unix.SIGKILL) //nolint:errcheck // it may have ended
		<-c.Init().Done()
		c.Delete(ctx)  //nolint:errcheck // `ibex delete` can be called again, and tells
		os.Remove(dir) //nolint:errcheck // as above
	}
	var restore func()
	if m := c.Init().Console(); m != nil && f.console == "" {
		if restore, err = attach(c.Init(), m); err != nil {
			remove()
			return err
		}
		defer restore()
	}
	if err := c.Init().Start(ctx, container.Stdio{}); err != nil {
		remove()
		return err
	}
	if f.detach {
		c.Close()
		return nil
	}
	forward(c.Init())
	<-c.Init().Done()
	code := int(c.Init().ExitStatus().Code)
	if !f.keep {
		remove()
	}
	if code != 0 {
		if restore != nil {
			restore()
		}
		return exitError{code}
	}
	return nil
}

// forward passes signals on to the container's process.
func forward(p *container.Process) {
	ch := make(chan os.Signal, 16)
	signal.Notify(ch)
	go func() {
		for s := range ch {
			sig := s.(unix.Signal)
			switch sig {
			case unix.SIGCHLD, unix.SIGPIPE, unix.SIGURG, unix.SIGWINCH:
			default:
				p.Kill(sig) //nolint:errcheck // it may have ended
			}
		}
	}()
}

// attach connects our own terminal, if we have one, with the container's.
func attach(p *container.Process, master *os.File) (restore func(), err error) {
	restore = func() {}
	if st, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		raw := *st
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		if err := unix.IoctlSetTermios(0, unix.TCSETS, &raw); err != nil {
			return nil, err
		}
		restore = func() { unix.IoctlSetTermios(0, unix.TCSETS, st) } //nolint:errcheck // a terminal that went away needs no restoring
	}
	resize := func() {
		if w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
			p.Resize(container.WinSize{Rows: w.Row, Cols: w.Col}) //nolint:errcheck // it may have ended
		}
	}
	resize()
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGWINCH)
	go func() {
		for range ch {
			resize()
		}
	}()
	done := make(chan struct{})
	go func() { io.Copy(master, os.Stdin) }()               //nolint:errcheck // ends with the terminal
	go func() { io.Copy(os.Stdout, master); close(done) }() //nolint:errcheck // EIO is how a terminal ends
	return func() { <-done; restore() }, nil
}
