package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/pathsafe"
)

// record is what is kept on disk about a container: enough to remove what it
// left when the process that made it is gone.
type record struct {
	Version     int       `json:"version"`
	ID          string    `json:"id"`
	Bundle      string    `json:"bundle"`
	CgroupsPath string    `json:"cgroupsPath"`
	PID         int       `json:"pid,omitempty"`
	StartTime   uint64    `json:"startTime,omitempty"` // of PID, in clock ticks since boot: proves that it is the same process
	Created     time.Time `json:"created"`
	// Of a container that was created detached:
	Path    string     `json:"path,omitempty"` // the program, looked up
	Started bool       `json:"started,omitempty"`
	Paused  bool       `json:"paused,omitempty"`
	Exit    *exitState `json:"exit,omitempty"`
}

type exitState struct {
	Code uint32    `json:"code"`
	At   time.Time `json:"at"`
}

const (
	recordVersion = 1
	recordMax     = 64 << 10
)

var recordName = pathsafe.MustName("ibex.json")

// save replaces the record in one step: whoever reads it sees the old or the
// new one, whole.
func (r *record) save(dir *pathsafe.Dir) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := dir.WriteFileAtomic(recordName, data, 0o600); err != nil {
		return fmt.Errorf("save the container's record: %w", err)
	}
	return nil
}

// loadRecord reads the record; ErrNotFound if there is none.
func loadRecord(dir *pathsafe.Dir) (*record, error) {
	data, err := dir.ReadFile(recordName, recordMax)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("record of the container: %w", ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read the container's record: %w", err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("parse the container's record: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("record of the container: version %d, this program knows %d", r.Version, recordVersion)
	}
	return &r, nil
}
