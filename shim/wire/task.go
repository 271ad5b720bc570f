package wire

// The requests and responses of containerd.task.v2.Task and v3, which are the
// same on the wire (api/runtime/task/v3/shim.proto of containerd). Those that are
// alike share a type.

// ContainerRequest names a container: Pids, Pause, Resume, Stats, Connect.
type ContainerRequest struct{ ID string }

// Fields implements Message.
func (m *ContainerRequest) Fields(c *Coder) { c.String(1, &m.ID) }

// ProcessRequest names a process, the first of a container if ExecID is empty:
// State, Start, Delete, Wait.
type ProcessRequest struct{ ID, ExecID string }

// Fields implements Message.
func (m *ProcessRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.ExecID)
}

// CreateRequest is CreateTaskRequest.
type CreateRequest struct {
	ID, Bundle            string
	Rootfs                []*Mount
	Terminal              bool
	Stdin, Stdout, Stderr string
	Checkpoint            string
	Options               *Any
}

// Fields implements Message.
func (m *CreateRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.Bundle)
	Subs(c, 3, &m.Rootfs)
	c.Bool(4, &m.Terminal)
	c.String(5, &m.Stdin)
	c.String(6, &m.Stdout)
	c.String(7, &m.Stderr)
	c.String(8, &m.Checkpoint)
	Sub(c, 10, &m.Options)
}

// PidResponse answers Create and Start.
type PidResponse struct{ Pid uint32 }

// Fields implements Message.
func (m *PidResponse) Fields(c *Coder) { c.Uint32(1, &m.Pid) }

// DeleteResponse answers Delete, and is what the action delete prints.
type DeleteResponse struct {
	Pid, ExitStatus uint32
	ExitedAt        *Timestamp
}

// Fields implements Message.
func (m *DeleteResponse) Fields(c *Coder) {
	c.Uint32(1, &m.Pid)
	c.Uint32(2, &m.ExitStatus)
	Sub(c, 3, &m.ExitedAt)
}

// ExecRequest is ExecProcessRequest.
type ExecRequest struct {
	ID, ExecID            string
	Terminal              bool
	Stdin, Stdout, Stderr string
	Spec                  *Any
}

// Fields implements Message.
func (m *ExecRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.ExecID)
	c.Bool(3, &m.Terminal)
	c.String(4, &m.Stdin)
	c.String(5, &m.Stdout)
	c.String(6, &m.Stderr)
	Sub(c, 7, &m.Spec)
}

// ResizeRequest is ResizePtyRequest. The unit is characters.
type ResizeRequest struct {
	ID, ExecID    string
	Width, Height uint32
}

// Fields implements Message.
func (m *ResizeRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.ExecID)
	c.Uint32(3, &m.Width)
	c.Uint32(4, &m.Height)
}

// State is containerd.v1.types.Status: what a process does.
type State uint32

// The states, as containerd numbers them.
const (
	Unknown State = iota
	Created
	Running
	Stopped
	Paused
)

// StateResponse answers State.
type StateResponse struct {
	ID, Bundle            string
	Pid                   uint32
	Status                State
	Stdin, Stdout, Stderr string
	Terminal              bool
	ExitStatus            uint32
	ExitedAt              *Timestamp
	ExecID                string
}

// Fields implements Message.
func (m *StateResponse) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.Bundle)
	c.Uint32(3, &m.Pid)
	c.Uint32(4, (*uint32)(&m.Status))
	c.String(5, &m.Stdin)
	c.String(6, &m.Stdout)
	c.String(7, &m.Stderr)
	c.Bool(8, &m.Terminal)
	c.Uint32(9, &m.ExitStatus)
	Sub(c, 10, &m.ExitedAt)
	c.String(11, &m.ExecID)
}

// KillRequest asks for a signal.
type KillRequest struct {
	ID, ExecID string
	Signal     uint32
	All        bool
}

// Fields implements Message.
func (m *KillRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.ExecID)
	c.Uint32(3, &m.Signal)
	c.Bool(4, &m.All)
}

// CloseIORequest asks for the end of a process's input.
type CloseIORequest struct {
	ID, ExecID string
	Stdin      bool
}

// Fields implements Message.
func (m *CloseIORequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	c.String(2, &m.ExecID)
	c.Bool(3, &m.Stdin)
}

// PidsResponse lists processes.
type PidsResponse struct{ Processes []*ProcessInfo }

// Fields implements Message.
func (m *PidsResponse) Fields(c *Coder) { Subs(c, 1, &m.Processes) }

// ProcessInfo is one of them.
type ProcessInfo struct {
	Pid  uint32
	Info *Any // ProcessDetails, for an exec
}

// Fields implements Message.
func (m *ProcessInfo) Fields(c *Coder) {
	c.Uint32(1, &m.Pid)
	Sub(c, 2, &m.Info)
}

// DetailsName is the type of ProcessDetails in an Any.
const DetailsName = "containerd.runc.v1.ProcessDetails"

// ProcessDetails tells which exec a process is.
type ProcessDetails struct{ ExecID string }

// Fields implements Message.
func (m *ProcessDetails) Fields(c *Coder) { c.String(1, &m.ExecID) }

// UpdateRequest is UpdateTaskRequest.
type UpdateRequest struct {
	ID        string
	Resources *Any
}

// Fields implements Message.
func (m *UpdateRequest) Fields(c *Coder) {
	c.String(1, &m.ID)
	Sub(c, 2, &m.Resources)
}

// WaitResponse tells how a process ended.
type WaitResponse struct {
	ExitStatus uint32
	ExitedAt   *Timestamp
}

// Fields implements Message.
func (m *WaitResponse) Fields(c *Coder) {
	c.Uint32(1, &m.ExitStatus)
	Sub(c, 2, &m.ExitedAt)
}

// StatsResponse carries a reading.
type StatsResponse struct{ Stats *Any }

// Fields implements Message.
func (m *StatsResponse) Fields(c *Coder) { Sub(c, 1, &m.Stats) }

// ConnectResponse tells who serves.
type ConnectResponse struct {
	ShimPid, TaskPid uint32
	Version          string
}

// Fields implements Message.
func (m *ConnectResponse) Fields(c *Coder) {
	c.Uint32(1, &m.ShimPid)
	c.Uint32(2, &m.TaskPid)
	c.String(3, &m.Version)
}
