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
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/container"
)

type execFlags struct {
	handOver
	cwd, user, process, label, apparmor  string
	env, caps, gids, cgroups             []string
	tty, detach, noNewPrivs, ignorePause bool
	noNewPrivsSet                        bool
	preserveFDs                          int
}

// execFailed is the exit code where exec itself fails.
const execFailed = 255

func execCmd(o *options) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use: "exec [flags] ID COMMAND...", Short: "Run a further process in a container", Args: cobra.MinimumNArgs(1),
		Example: "  ibex exec web1 cat /etc/hostname\n  ibex exec -t -u 1000:1000 web1 sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.noNewPrivsSet = cmd.Flags().Changed("no-new-privs")
			err := f.run(cmd.Context(), o, args[0], args[1:])
			var e exitError
			if err != nil && !errors.As(err, &e) {
				err = fmt.Errorf("exec failed: %w", err)
			}
			return withCode(err, execFailed)
		},
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	f.handOver.add(fl)
	fl.StringVar(&f.cwd, "cwd", "", "working directory")
	fl.StringArrayVarP(&f.env, "env", "e", nil, "environment variable NAME=VALUE")
	fl.BoolVarP(&f.tty, "tty", "t", false, "with a terminal")
	fl.StringVarP(&f.user, "user", "u", "", "UID[:GID]")
	fl.StringArrayVarP(&f.gids, "additional-gids", "g", nil, "supplementary groups")
	fl.StringVarP(&f.process, "process", "p", "", "file with an OCI process, instead of a command and flags")
	fl.BoolVarP(&f.detach, "detach", "d", false, "do not wait for the process's end")
	fl.StringVar(&f.label, "process-label", "", "SELinux label")
	fl.StringVar(&f.apparmor, "apparmor", "", "AppArmor profile")
	fl.BoolVar(&f.noNewPrivs, "no-new-privs", false, "no new privileges")
	fl.StringArrayVarP(&f.caps, "cap", "c", nil, "a capability more")
	fl.IntVar(&f.preserveFDs, "preserve-fds", 0, "pass this many further descriptors on")
	fl.StringArrayVar(&f.cgroups, "cgroup", nil, "existing cgroup below the container's, on cgroup v1 CONTROLLER[,CONTROLLER]:PATH")
	fl.BoolVar(&f.ignorePause, "ignore-paused", false, "in a paused container, wait until it is resumed")
	return cmd
}

func (f *execFlags) run(ctx context.Context, o *options, id string, args []string) error {
	c, err := o.open(id)
	if err != nil {
		return err
	}
	defer c.Close()
	switch c.Init().Status() {
	case container.Stopped:
		return errors.New("cannot exec in a stopped container")
	case container.Paused:
		if !f.ignorePause {
			return errors.New("cannot exec in a paused container (use --ignore-paused to override)")
		}
	}
	spec, err := f.spec(c, args)
	if err != nil {
		return err
	}
	if err := f.checkConsole(spec.Terminal, f.detach); err != nil {
		return err
	}
	extra, _, err := extraFDs(f.preserveFDs, false)
	if err != nil {
		return err
	}
	p, err := c.Exec("cli-"+strconv.Itoa(os.Getpid()), spec, spec.Terminal)
	if err != nil {
		return err
	}
	if f.ignorePause {
		p.AllowPaused()
	}
	if err := f.setCgroup(p); err != nil {
		return err
	}
	if err := p.Start(ctx, container.Stdio{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Extra: extra}); err != nil {
		return err
	}
	if err := f.give(p); err != nil {
		p.Kill(unix.SIGKILL) //nolint:errcheck // it may have ended
		return err
	}
	var t *terminal
	if m := p.Console(); m != nil && f.console == "" {
		if t, err = attach(p, m); err != nil {
			return err
		}
		defer t.restore()
	}
	if f.detach {
		return nil
	}
	if code := wait(p, t); code != 0 {
		return exitError{code}
	}
	return nil
}

// setCgroup takes --cgroup apart.
func (f *execFlags) setCgroup(p *container.Process) error {
	if len(f.cgroups) == 0 {
		return nil
	}
	below := map[string]string{}
	for _, arg := range f.cgroups {
		controllers, path, ok := strings.Cut(arg, ":")
		if !ok {
			controllers, path = "", arg
		}
		for _, c := range strings.Split(controllers, ",") {
			if _, twice := below[c]; twice || ok && c == "" || !ok && len(f.cgroups) > 1 {
				return fmt.Errorf("--cgroup %q: want one CONTROLLER[,CONTROLLER]:PATH for each controller, or one path", arg)
			}
			below[c] = path
		}
	}
	return p.SetCgroup(below)
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
		return nil, errors.New("no command")
	}
	p := specs.Process{Cwd: "/"}
	if own := c.Spec().Process; own != nil {
		p = *own
	}
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
	if f.noNewPrivsSet {
		p.NoNewPrivileges = f.noNewPrivs
	}
	f.addCaps(&p)
	return &p, f.setUser(&p)
}

// addCaps adds capabilities to the sets, to the ambient one only where the
// inheritable set allows for any.
func (f *execFlags) addCaps(p *specs.Process) {
	if len(f.caps) == 0 {
		return
	}
	var l specs.LinuxCapabilities
	if p.Capabilities != nil {
		l = *p.Capabilities
	}
	for _, set := range []*[]string{&l.Bounding, &l.Effective, &l.Permitted} {
		*set = append((*set)[:len(*set):len(*set)], f.caps...)
	}
	for _, name := range f.caps {
		for _, i := range l.Inheritable {
			if strings.EqualFold(i, name) {
				l.Ambient = append(l.Ambient[:len(l.Ambient):len(l.Ambient)], name)
			}
		}
	}
	p.Capabilities = &l
}

func (f *execFlags) setUser(p *specs.Process) error {
	number := func(flag, text string) (uint32, error) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("--%s %q: want a number", flag, text)
		}
		return uint32(n), nil
	}
	var err error
	if f.user != "" {
		uid, gid, both := strings.Cut(f.user, ":")
		if p.User.UID, err = number("user", uid); err != nil {
			return err
		}
		if both {
			if p.User.GID, err = number("user", gid); err != nil {
				return err
			}
		}
	}
	for _, g := range f.gids {
		n, err := number("additional-gids", g)
		if err != nil {
			return err
		}
		p.User.AdditionalGids = append(p.User.AdditionalGids[:len(p.User.AdditionalGids):len(p.User.AdditionalGids)], n)
	}
	return nil
}
