package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
	"github.com/ibex-run/ibex/internal/exeseal"
)

// options are the flags before the verb.
type options struct {
	root      string
	log       string
	logFormat string
	debug     bool
	systemd   bool
	rootless  string

	logger logger
}

const defaultRoot = "/run/ibex"

// version and commit are set by the linker.
var version, commit = "0.0.0-dev", "unknown"

func versionText() string {
	return fmt.Sprintf("ibex version %s\ncommit: %s\nspec: %s\ngo: %s\n", version, commit, specs.Version, runtime.Version())
}

// helpText has the sections, in the order, that other runtimes' users know.
const helpText = `NAME:
   {{.CommandPath}} - {{.Short}}

USAGE:
   {{.UseLine}}
{{if .HasAvailableSubCommands}}
COMMANDS:{{range .Commands}}{{if .IsAvailableCommand}}
   {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasExample}}
EXAMPLES:
{{.Example}}
{{end}}{{if .HasAvailableLocalFlags}}
OPTIONS:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
GLOBAL OPTIONS:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`

func root(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "ibex",
		Short:         "Run OCI containers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Example:       "  ibex run -b BUNDLE web1\n  ibex exec -t web1 sh\n  ibex delete --force web1",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return o.prepare(cmd)
		},
	}
	cmd.SetVersionTemplate(versionText())
	cmd.SetHelpTemplate(helpText)
	f := cmd.PersistentFlags()
	f.StringVar(&o.root, "root", defaultRoot, "directory of the containers' state, on a tmpfs")
	f.StringVar(&o.log, "log", "", "file for errors and warnings, besides standard error")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log: text or json")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.systemd, "systemd-cgroup", false, "accepted: the form of cgroupsPath decides")
	f.StringVar(&o.rootless, "rootless", "auto", "accepted: only false and auto work")
	cmd.AddCommand(
		createCmd(o), runCmd(o), startCmd(o), stateCmd(o), killCmd(o), deleteCmd(o), listCmd(o), psCmd(o),
		execCmd(o), pauseCmd(o), resumeCmd(o), updateCmd(o), eventsCmd(o), featuresCmd(), specCmd(),
		refusedCmd("checkpoint", "Refused: Save a running container"),
		refusedCmd("restore", "Refused: Restore a saved container"),
		planCmd(o), statsCmd(o), configCmd(), doctorCmd(), versionCmd(),
	)
	return cmd
}

func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// refusedCmd is a verb of other runtimes that is not there.
func refusedCmd(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name + " ID", Short: short, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				if a == "-h" || a == "--help" {
					return cmd.Help()
				}
			}
			return fmt.Errorf("%s: not supported: ibex does not save or restore processes", name)
		},
	}
}

// prepare comes before every verb.
func (o *options) prepare(cmd *cobra.Command) error {
	switch cmd.Name() {
	case "create", "run", "start", "exec":
		// What becomes a container's process is a copy of this one.
		if os.Geteuid() == 0 {
			if err := exeseal.Reexec(filepath.Dir(defaultRoot)); err != nil {
				return err
			}
		}
	}
	if err := o.logger.open(o.log, o.logFormat, o.debug); err != nil {
		return err
	}
	o.logger.debugf("%s, arguments %q", cmd.CommandPath(), os.Args[1:])
	if o.rootless == "true" {
		return errors.New("--rootless: only root can run containers")
	}
	switch cmd.Name() {
	case "features", "spec", "help", "doctor", "completion", "version", "checkpoint", "restore", "bash", "zsh", "fish", "powershell":
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("must be run as root")
	}
	if o.root == defaultRoot {
		if err := os.MkdirAll(o.root, 0o711); err != nil {
			return err
		}
	}
	return container.Setup(false)
}

// dir is the state directory of a container.
func (o *options) dir(id string) (string, error) {
	if id == "" || id == "." || id == ".." || filepath.Base(id) != id {
		return "", fmt.Errorf("container ID %q: not a name", id)
	}
	root, err := filepath.Abs(o.root)
	return filepath.Join(root, id), err
}

// open takes up a container.
func (o *options) open(id string) (*container.Container, error) {
	dir, err := o.dir(id)
	if err != nil {
		return nil, err
	}
	c, err := container.Open(dir)
	if errors.Is(err, container.ErrNotFound) {
		return nil, fmt.Errorf("container %q does not exist", id)
	}
	return c, err
}

// exitError ends the program with the code of a container's process.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

// codeError ends the program with an error and a code of its own.
type codeError struct {
	error
	code int
}

func (e codeError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var e exitError
	var c codeError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &c):
		return c.code
	}
	return 1
}

// What shells give for a command that they cannot run: execve(2) through sh(1).
const (
	notFound     = 127
	notPermitted = 126
)

// withCode gives an error of run or exec its exit code: that of a shell where
// the command itself is at fault, else other.
func withCode(err error, other int) error {
	var e exitError
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case container.IsCommandNotFound(err):
		return codeError{err, notFound}
	case container.IsCommandRefused(err):
		return codeError{err, notPermitted}
	}
	return codeError{err, other}
}
