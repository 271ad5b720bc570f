package ktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Scratch is a temporary directory that names everything a test run makes:
// processes carry it in their environment, the base name is the top cgroup.
// What a crashed run left is found by it and removed by the next one.
type Scratch struct {
	Dir string // PREFIX + random, below the system's temporary directory
}

// EnvName is the environment variable that marks the processes of a run.
const EnvName = "IBEX_TEST_DIR"

// NewScratch removes what ended runs with that prefix left, then makes a new
// directory. The prefix must start with "ibex-".
func NewScratch(prefix string) (*Scratch, error) {
	if err := cleanStale(prefix); err != nil {
		return nil, err
	}
	// The real path: mounts below it are compared as the kernel prints them.
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(tmp, prefix)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	self, err := ReadProc(os.Getpid())
	if err != nil {
		return nil, err
	}
	owner := fmt.Sprintf("%d %d\n", self.PID, self.Start)
	return &Scratch{Dir: dir}, os.WriteFile(filepath.Join(dir, "owner"), []byte(owner), 0o600)
}

// Name is the base name of the directory.
func (s *Scratch) Name() string { return filepath.Base(s.Dir) }

// Env marks a process as one of this run.
func (s *Scratch) Env() string { return EnvName + "=" + s.Dir }

// Residue says what must be gone at the end of the run, before Remove.
func (s *Scratch) Residue() Residue {
	return Residue{Cgroup: "/" + s.Name(), Env: s.Env()}
}

// Remove ends and removes everything of the run.
func (s *Scratch) Remove() error { return removeRun(s.Dir) }

// cleanStale removes the runs whose owner has ended.
func cleanStale(prefix string) error {
	if !strings.HasPrefix(prefix, "ibex-") {
		return fmt.Errorf("scratch prefix %q does not start with ibex-", prefix)
	}
	tmp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(tmp, prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range dirs {
		if !ownerLives(d) {
			errs = append(errs, removeRun(d))
		}
	}
	return errors.Join(errs...)
}

// ownerLives tells whether the process that made the directory still runs. A
// directory without a readable owner file belongs to nobody, unless it is so
// young that the file may be about to be written.
func ownerLives(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "owner"))
	f := strings.Fields(string(text))
	if err != nil || len(f) != 2 {
		st, err := os.Stat(dir)
		return err == nil && time.Since(st.ModTime()) < 10*time.Second
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		return false
	}
	p, err := ReadProc(pid)
	return err == nil && strconv.FormatUint(p.Start, 10) == f[1]
}

// removeRun kills the processes that carry the directory in their environment,
// and removes the cgroup of its name, the mounts below it and itself.
func removeRun(dir string) error {
	mark := EnvName + "=" + dir
	errs := []error{
		// First the daemons, which would otherwise start something again.
		Poll(10*time.Second, func() error {
			for _, p := range Procs() {
				if p.PID != os.Getpid() && p.State != 'Z' && HasEnv(p.PID, mark) {
					_ = unix.Kill(p.PID, unix.SIGKILL)
					return fmt.Errorf("%v does not end", p)
				}
			}
			return nil
		}),
		RemoveCgroup("/" + filepath.Base(dir)),
		UnmountBelow(dir),
	}
	if len(MountsBelow(dir)) == 0 { // never delete through a mount
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}
