package container

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/cgroups"
	cgroup1 "github.com/ibex-run/ibex/cgroups/v1"
	cgroup2 "github.com/ibex-run/ibex/cgroups/v2"
	"github.com/ibex-run/ibex/internal/ocijson"
	"github.com/ibex-run/ibex/pathsafe"
)

// View is a look at a container from outside, whoever runs it. What it tells
// comes from the container's record and from the kernel; nobody is asked.
type View struct {
	ID, Bundle, StateDir string
	Cgroup               string
	PID                  int // of the first process, 0 before it exists
	Created              time.Time
	Annotations          map[string]string
	Args                 []string // process.args

	rec   record
	group group // nil: gone, or not there yet
}

// Look looks at the container whose record is in stateDir: for one of a shim's
// that is its bundle. ErrNotFound if there is none.
func Look(stateDir string) (*View, error) {
	h, err := host()
	if err != nil {
		return nil, err
	}
	state, err := pathsafe.OpenState(stateDir)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, fmt.Errorf("%s: %w", stateDir, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	defer state.Close()
	rec, err := loadRecord(state)
	if err != nil {
		return nil, err
	}
	v := &View{
		ID: rec.ID, Bundle: rec.Bundle, StateDir: stateDir, PID: rec.PID, Created: rec.Created, rec: *rec,
	}
	p, err := cgroups.ParsePath(rec.CgroupsPath, rec.ID)
	if err != nil {
		return nil, err
	}
	v.Cgroup = "/" + p.Rel().String()
	if err := v.readSpec(state); err != nil {
		return nil, err
	}
	if h.layout.Mode == cgroups.V2 {
		v.group, err = typed(cgroup2.Open(h.layout, p))
	} else {
		v.group, err = typed(cgroup1.Open(h.layout, p))
	}
	if err != nil && !errors.Is(err, cgroups.ErrNotFound) {
		return nil, err
	}
	return v, nil
}

// typed avoids an interface that holds a nil pointer.
func typed[G group](g G, err error) (group, error) {
	if err != nil {
		return nil, err
	}
	return g, nil
}

// readSpec takes from the configuration what tells people which container this
// is. It is not judged: a later version of this program may look at it.
func (v *View) readSpec(state *pathsafe.Dir) error {
	data, err := state.ReadFile(specName, specMax)
	if err != nil {
		return fmt.Errorf("read config.json: %w", err)
	}
	var s struct {
		Process *struct {
			Args []string `json:"args"`
		} `json:"process"`
		Annotations map[string]string `json:"annotations"`
	}
	if err := ocijson.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("parse config.json: %w", err)
	}
	v.Annotations = s.Annotations
	if s.Process != nil {
		v.Args = s.Process.Args
	}
	return nil
}

// Same reports whether the record is still the one that was read: a container of
// the same name may have taken the place.
func (v *View) Same() bool {
	state, err := pathsafe.OpenState(v.StateDir)
	if err != nil {
		return false
	}
	defer state.Close()
	rec, err := loadRecord(state)
	return err == nil && rec.PID == v.rec.PID && rec.StartTime == v.rec.StartTime && rec.Created.Equal(v.rec.Created)
}

// Status asks the kernel for the state.
func (v *View) Status() (Status, error) {
	h, err := host()
	if err != nil {
		return Stopped, err
	}
	if v.rec.PID == 0 && v.rec.Exit == nil {
		return Created, nil // it is being made
	}
	fd, err := v.rec.pidfd(h)
	if err != nil || fd < 0 {
		return Stopped, err
	}
	defer unix.Close(fd)
	st, err := readStat(h.proc, fd, v.rec.PID)
	if errors.Is(err, pathsafe.ErrGone) || err == nil && (st.state == 'Z' || st.state == 'X') {
		return Stopped, nil
	}
	if err != nil {
		return Stopped, err
	}
	if v.group != nil {
		if frozen, err := v.group.Frozen(); err == nil && frozen {
			return Paused, nil
		}
	}
	if st.flags&forkNoExec != 0 {
		return Created, nil
	}
	return Running, nil
}

// Stats reads the cgroup. ErrNotFound if it is gone.
func (v *View) Stats(s *cgroups.Stats) error {
	if v.group == nil {
		return fmt.Errorf("cgroup of container %q: %w", v.ID, ErrNotFound)
	}
	err := v.group.Stat(s)
	if errors.Is(err, cgroups.ErrGone) || errors.Is(err, pathsafe.ErrGone) {
		return fmt.Errorf("cgroup of container %q: %w: %w", v.ID, ErrNotFound, err)
	}
	return err
}

// Processes lists the processes in the container's cgroup.
func (v *View) Processes() ([]int, error) {
	if v.group == nil {
		return nil, nil
	}
	pids, err := v.group.Procs()
	if errors.Is(err, pathsafe.ErrGone) {
		return nil, nil
	}
	return pids, err
}

// Close lets go of the cgroup.
func (v *View) Close() {
	if v.group != nil {
		v.group.Close()
	}
}
