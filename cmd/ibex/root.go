package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ibex-run/ibex/container"
)

// options are the flags before the verb.
type options struct {
	root      string
	log       string
	logFormat string
	debug     bool
	systemd   bool
	rootless  string
}

const defaultRoot = "/run/ibex"

func root() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "ibex",
		Short:         "Run OCI containers",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return o.prepare(cmd)
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&o.root, "root", defaultRoot, "directory of the containers' state")
	f.StringVar(&o.log, "log", "", "file for errors, besides standard error")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log: text or json")
	f.BoolVar(&o.debug, "debug", false, "log more")
	f.BoolVar(&o.systemd, "systemd-cgroup", false, "accepted: the form of cgroupsPath decides")
	f.StringVar(&o.rootless, "rootless", "auto", "accepted: only false and auto work")
	cmd.AddCommand(
		createCmd(o), runCmd(o), startCmd(o), stateCmd(o), killCmd(o), deleteCmd(o), listCmd(o), psCmd(o),
		execCmd(o), pauseCmd(o), resumeCmd(o), updateCmd(o), eventsCmd(o), featuresCmd(), specCmd(),
	)
	return cmd
}

// version is set by the linker.
var version = "dev"

// needsHost are the verbs that touch the kernel.
func (o *options) prepare(cmd *cobra.Command) error {
	if o.rootless == "true" {
		return errors.New("--rootless: only root can run containers")
	}
	switch cmd.Name() {
	case "features", "spec", "help", "completion":
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("must be run as root")
	}
	if err := os.MkdirAll(o.root, 0o711); err != nil {
		return err
	}
	return container.Setup(false)
}

// dir is the state directory of a container.
func (o *options) dir(id string) (string, error) {
	if id == "" || id == "." || id == ".." || filepath.Base(id) != id {
		return "", fmt.Errorf("container ID %q: not a name", id)
	}
	return filepath.Join(o.root, id), nil
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

func exitCode(err error) int {
	var e exitError
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}
