package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

type execFlags struct {
	console, cwd, user, process, pidFile, label, apparmor, cgroup string
	env, caps, gids                                               []string
	tty, detach, noNewPrivs, ignorePaused                         bool
	preserveFDs                                                   int
}

func execCmd(o *options) *cobra.Command {
	var f execFlags
	cmd := o.verb("exec [flags] ID COMMAND...", "Run a further process in a container", func(ctx context.Context, c *container.Container, args []string) error {
		return f.run(ctx, c, args)
	})
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.console, "console-socket", "", "unix socket that gets the terminal's master side")
	fl.StringVar(&f.cwd, "cwd", "", "working directory")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE")
	fl.BoolVarP(&f.tty, "tty", "t", false, "with a terminal")
	fl.StringVarP(&f.user, "user", "u", "", "UID[:GID]")
	fl.StringArrayVarP(&f.gids, "additional-gids", "g", nil, "supplementary groups")
	fl.StringVarP(&f.process, "process", "p", "", "file with an OCI process")
	fl.BoolVarP(&f.detach, "detach", "d", false, "do not wait for the process's end")
	fl.StringVar(&f.pidFile, "pid-file", "", "file for the process's PID")
	fl.StringVar(&f.label, "process-label", "", "SELinux label")
	fl.StringVar(&f.apparmor, "apparmor", "", "AppArmor profile")
	fl.BoolVar(&f.noNewPrivs, "no-new-privs", false, "no new privileges")
	fl.StringArrayVarP(&f.caps, "cap", "c", nil, "a capability more")
	fl.IntVar(&f.preserveFDs, "preserve-fds", 0, "pass this many further descriptors on")
	fl.StringVar(&f.cgroup, "cgroup", "", "cgroup below the container's")
	fl.BoolVar(&f.ignorePaused, "ignore-paused", false, "refused: a process in a frozen cgroup does not run")
	return cmd
}

func (f *execFlags) run(ctx context.Context, c *container.Container, args []string) error {
	if f.cgroup != "" {
		return errors.New("--cgroup: not supported")
	}
	if f.ignorePaused {
		return errors.New("--ignore-paused: not supported")
	}
	if s := c.Init().Status(); s == container.Stopped {
		return errors.New("cannot exec in a stopped container")
	}
	spec, err := f.spec(c, args)
	if err != nil {
		return err
	}
	p, err := c.Exec("cli-"+strconv.Itoa(os.Getpid()), spec, spec.Terminal)
	if err != nil {
		return err
	}
	if err := p.Start(ctx, container.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}); err != nil {
		return err
	}
	if f.pidFile != "" {
		if err := writePID(f.pidFile, p.PID()); err != nil {
			return err
		}
	}
	restore := func() {}
	if m := p.Console(); m != nil {
		if f.console != "" {
			err = sendConsole(f.console, m)
		} else {
			restore, err = attach(p, m)
		}
		if err != nil {
			return err
		}
	}
	if f.detach {
		return nil
	}
	forward(p)
	<-p.Done()
	restore()
	if code := int(p.ExitStatus().Code); code != 0 {
		return exitError{code}
	}
	return nil
}

// spec is the container's own process with what the flags change.
func (f *execFlags) spec(c *container.Container, args []string) (*specs.Process, error) {
	if f.process != "" {
		data, err := os.ReadFile(f.process)
		if err != nil {
			return nil, err
		}
		var p specs.Process
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("--process: %w", err)
		}
		return &p, nil
	}
	if len(args) == 0 {
		return nil, errors.New("exec: no command")
	}
	p := *c.Spec().Process
	p.Args, p.Terminal, p.ConsoleSize = args, f.tty, nil
	p.Env = append(p.Env[:len(p.Env):len(p.Env)], f.env...)
	if f.cwd != "" {
		p.Cwd = f.cwd
	}
	if f.label != "" {
		p.SelinuxLabel = f.label
	}
	if f.apparmor != "" {
		p.ApparmorProfile = f.apparmor
	}
	p.NoNewPrivileges = p.NoNewPrivileges || f.noNewPrivs
	f.addCaps(&p)
	return &p, f.setUser(&p)
}

func (f *execFlags) addCaps(p *specs.Process) {
	if len(f.caps) == 0 {
		return
	}
	var l specs.LinuxCapabilities
	if p.Capabilities != nil {
		l = *p.Capabilities
	}
	l.Bounding = append(l.Bounding[:len(l.Bounding):len(l.Bounding)], f.caps...)
	l.Effective = append(l.Effective[:len(l.Effective):len(l.Effective)], f.caps...)
	l.Permitted = append(l.Permitted[:len(l.Permitted):len(l.Permitted)], f.caps...)
	p.Capabilities = &l
}

func (f *execFlags) setUser(p *specs.Process) error {
	if f.user != "" {
		uid, gid, both := strings.Cut(f.user, ":")
		u, err := strconv.ParseUint(uid, 10, 32)
		if err != nil {
			return fmt.Errorf("--user %q: %w", f.user, err)
		}
		p.User.UID = uint32(u)
		if both {
			g, err := strconv.ParseUint(gid, 10, 32)
			if err != nil {
				return fmt.Errorf("--user %q: %w", f.user, err)
			}
			p.User.GID = uint32(g)
		}
	}
	for _, g := range f.gids {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return fmt.Errorf("--additional-gids %q: %w", g, err)
		}
		p.User.AdditionalGids = append(p.User.AdditionalGids[:len(p.User.AdditionalGids):len(p.User.AdditionalGids)], uint32(n))
	}
	return nil
}
