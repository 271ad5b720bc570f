package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/ibex-run/ibex/shim/wire"
)

// maxConfigSize bounds a configuration file; a real one is a few lines.
const maxConfigSize = 1 << 20

// options are the runtime options that a caller may give, in any of the forms
// that containerd sends. The names are runc's, so that a configuration written
// for the runc shim keeps its meaning. Unknown names are an error.
type options struct {
	NoNewKeyring bool   // keep the session keyring of the shim
	ShimCgroup   string // cgroup that the shim itself moves to at start
	IoUid        uint32 // owner of the pipes given to the process
	IoGid        uint32
	ExecTreeKill bool   // SIGKILL to an exec kills all that it has started
	LogOverflow  string // what becomes of output that its reader does not take
	LogSpool     int64  // bytes that are kept for the reader

	NoPivotRoot   bool // refused
	SystemdCgroup bool // ignored: the shape of cgroupsPath chooses the driver

	// These name parts of runc that do not exist here.
	BinaryName     string
	Root           string
	CriuPath       string
	CriuImagePath  string
	CriuWorkPath   string
	TaskApiAddress string
	TaskApiVersion uint32
}

// parseOptions decodes what containerd attached to a request: nothing, runc's
// options, or runtimeoptions.v1.Options, which is what the CRI plugin and ctr
// send for every runtime that is not runc's own.
func parseOptions(a *wire.Any) (options, error) {
	var o options
	if a == nil || (a.TypeURL == "" && len(a.Value) == 0) {
		return o, nil
	}
	var err error
	switch a.Name() {
	case wire.RuncOptionsName:
		o, err = runcOptions(a.Value)
	case wire.RuntimeOptionsName:
		o, err = tomlOptions(a.Value)
	default:
		return o, fmt.Errorf("runtime options: type %q is not known: %w", a.TypeURL, errInvalid)
	}
	if err != nil {
		return o, err
	}
	return o, o.check()
}

// isOptions tells runtime options from the other things that come with a start.
func isOptions(a *wire.Any) bool {
	name := a.Name()
	return name == wire.RuncOptionsName || name == wire.RuntimeOptionsName
}

func runcOptions(data []byte) (options, error) {
	var r wire.RuncOptions
	if err := wire.Unmarshal(data, &r); err != nil {
		return options{}, fmt.Errorf("decode runtime options: %w: %w", err, errInvalid)
	}
	return options{
		NoNewKeyring: r.NoNewKeyring, ShimCgroup: r.ShimCgroup, IoUid: r.IoUID, IoGid: r.IoGID,
		NoPivotRoot: r.NoPivotRoot, SystemdCgroup: r.SystemdCgroup,
		BinaryName: r.BinaryName, Root: r.Root,
		CriuImagePath: r.CriuImagePath, CriuWorkPath: r.CriuWorkPath,
	}, nil
}

func tomlOptions(data []byte) (options, error) {
	var r wire.RuntimeOptions
	if err := wire.Unmarshal(data, &r); err != nil {
		return options{}, fmt.Errorf("decode runtime options: %w: %w", err, errInvalid)
	}
	body, from := r.ConfigBody, "ConfigBody"
	if len(body) == 0 && r.ConfigPath != "" {
		var err error
		if body, err = readConfig(r.ConfigPath); err != nil {
			return options{}, fmt.Errorf("runtime options: ConfigPath: %w", err)
		}
		from = r.ConfigPath
	}
	o, err := parseTOML(body)
	if err != nil {
		return options{}, fmt.Errorf("runtime options: %s: %w: %w", from, err, errInvalid)
	}
	return o, nil
}

func parseTOML(body []byte) (options, error) {
	var o options
	err := toml.NewDecoder(bytes.NewReader(body)).DisallowUnknownFields().Decode(&o)
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) {
		var keys []string
		for _, e := range strict.Errors {
			keys = append(keys, strings.Join(e.Key(), "."))
		}
		return options{}, fmt.Errorf("unknown key %s", strings.Join(keys, ", "))
	}
	return o, err
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxConfigSize+1))
	if err == nil && len(body) > maxConfigSize {
		err = fmt.Errorf("%s: more than %d bytes", path, maxConfigSize)
	}
	return body, err
}

// ignored names the options that were given and mean nothing here.
func (o *options) ignored() []string {
	var names []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"BinaryName", o.BinaryName != ""},
		{"Root", o.Root != ""},
		{"CriuPath", o.CriuPath != ""},
		{"CriuImagePath", o.CriuImagePath != ""},
		{"CriuWorkPath", o.CriuWorkPath != ""},
		{"TaskApiAddress", o.TaskApiAddress != ""},
		{"TaskApiVersion", o.TaskApiVersion != 0},
		{"SystemdCgroup", o.SystemdCgroup},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}
