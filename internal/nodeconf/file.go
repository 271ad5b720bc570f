package nodeconf

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/pathsafe"
)

// Path is the node's configuration.
const Path = "/etc/ibex/config.toml"

const maxSize = 1 << 20

// File follows a configuration file; see Open.
type File struct {
	path   string
	capBit CapBit

	mu    sync.Mutex
	stamp pathsafe.Stamp // guarded by mu: of the content below
	conf  Config         // guarded by mu: the last good one
	err   error          // guarded by mu: why the present content is not in force
}

// Open follows the file at path, which need not exist.
func Open(path string, capBit CapBit) *File { return &File{path: path, capBit: capBit} }

// Get returns the configuration in force. A file that is not there configures
// nothing. One that cannot be read or parsed leaves the last good configuration
// in force, and the error says so each time.
func (f *File) Get() (Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := pathsafe.StampOf(f.path)
	if errors.Is(err, unix.ENOENT) {
		f.conf, f.stamp, f.err = Config{}, pathsafe.Stamp{}, nil
		return f.conf, nil
	}
	if err == nil && stamp == f.stamp {
		return f.conf, f.err
	}
	f.stamp = stamp
	var conf Config
	if err == nil {
		conf, err = f.read()
	}
	if err != nil {
		f.err = fmt.Errorf("%s: %w; what was in force before stays so", f.path, err)
		return f.conf, f.err
	}
	f.conf, f.err = conf, nil
	return conf, nil
}

func (f *File) read() (Config, error) {
	dir, err := pathsafe.OpenState(filepath.Dir(f.path))
	if err != nil {
		return Config{}, err
	}
	defer dir.Close()
	name, err := pathsafe.ParseName(filepath.Base(f.path))
	if err != nil {
		return Config{}, err
	}
	data, err := dir.ReadFile(name, maxSize)
	if err != nil {
		return Config{}, err
	}
	return Parse(string(data), f.capBit)
}
