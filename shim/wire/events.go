package wire

// The events that containerd passes on to its subscribers
// (api/events/task.proto of containerd).

// Event is one of them.
type Event interface {
	Message
	// Topic is the name under which containerd passes it on.
	Topic() string
	// Name is that of its type.
	Name() string
}

// Pack puts an event into an envelope.
func Pack(e Event, namespace string, at *Timestamp) *Envelope {
	return &Envelope{Timestamp: at, Namespace: namespace, Topic: e.Topic(), Event: &Any{TypeURL: e.Name(), Body: e}}
}

// Envelope is containerd.types.Envelope.
type Envelope struct {
	Timestamp        *Timestamp
	Namespace, Topic string
	Event            *Any
}

// Fields implements Message.
func (m *Envelope) Fields(c *Coder) {
	Sub(c, 1, &m.Timestamp)
	c.String(2, &m.Namespace)
	c.String(3, &m.Topic)
	Sub(c, 4, &m.Event)
}

// ForwardRequest hands an event to containerd's event service.
type ForwardRequest struct{ Envelope *Envelope }

// Fields implements Message.
func (m *ForwardRequest) Fields(c *Coder) { Sub(c, 1, &m.Envelope) }

// TaskCreate says that a container is there.
type TaskCreate struct {
	ContainerID, Bundle string
	Rootfs              []*Mount
	IO                  *TaskIO
	Checkpoint          string
	Pid                 uint32
}

// Topic implements Event.
func (*TaskCreate) Topic() string { return "/tasks/create" }

// Name implements Event.
func (*TaskCreate) Name() string { return "containerd.events.TaskCreate" }

// Fields implements Message.
func (m *TaskCreate) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.String(2, &m.Bundle)
	Subs(c, 3, &m.Rootfs)
	Sub(c, 4, &m.IO)
	c.String(5, &m.Checkpoint)
	c.Uint32(6, &m.Pid)
}

// TaskIO says where its input and output go.
type TaskIO struct {
	Stdin, Stdout, Stderr string
	Terminal              bool
}

// Fields implements Message.
func (m *TaskIO) Fields(c *Coder) {
	c.String(1, &m.Stdin)
	c.String(2, &m.Stdout)
	c.String(3, &m.Stderr)
	c.Bool(4, &m.Terminal)
}

// TaskStart says that its first process runs.
type TaskStart struct {
	ContainerID string
	Pid         uint32
}

// Topic implements Event.
func (*TaskStart) Topic() string { return "/tasks/start" }

// Name implements Event.
func (*TaskStart) Name() string { return "containerd.events.TaskStart" }

// Fields implements Message.
func (m *TaskStart) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.Uint32(2, &m.Pid)
}

// TaskDelete says that a container is gone.
type TaskDelete struct {
	ContainerID     string
	Pid, ExitStatus uint32
	ExitedAt        *Timestamp
}

// Topic implements Event.
func (*TaskDelete) Topic() string { return "/tasks/delete" }

// Name implements Event.
func (*TaskDelete) Name() string { return "containerd.events.TaskDelete" }

// Fields implements Message.
func (m *TaskDelete) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.Uint32(2, &m.Pid)
	c.Uint32(3, &m.ExitStatus)
	Sub(c, 4, &m.ExitedAt)
}

// TaskExit says that a process has ended. ID is that of the container for its
// first one.
type TaskExit struct {
	ContainerID, ID string
	Pid, ExitStatus uint32
	ExitedAt        *Timestamp
}

// ExitTopic is the topic of TaskExit.
const ExitTopic = "/tasks/exit"

// Topic implements Event.
func (*TaskExit) Topic() string { return ExitTopic }

// Name implements Event.
func (*TaskExit) Name() string { return "containerd.events.TaskExit" }

// Fields implements Message.
func (m *TaskExit) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.String(2, &m.ID)
	c.Uint32(3, &m.Pid)
	c.Uint32(4, &m.ExitStatus)
	Sub(c, 5, &m.ExitedAt)
}

// TaskOOM says that the kernel has killed something for want of memory.
type TaskOOM struct{ ContainerID string }

// Topic implements Event.
func (*TaskOOM) Topic() string { return "/tasks/oom" }

// Name implements Event.
func (*TaskOOM) Name() string { return "containerd.events.TaskOOM" }

// Fields implements Message.
func (m *TaskOOM) Fields(c *Coder) { c.String(1, &m.ContainerID) }

// TaskExecAdded says that an exec was accepted.
type TaskExecAdded struct{ ContainerID, ExecID string }

// Topic implements Event.
func (*TaskExecAdded) Topic() string { return "/tasks/exec-added" }

// Name implements Event.
func (*TaskExecAdded) Name() string { return "containerd.events.TaskExecAdded" }

// Fields implements Message.
func (m *TaskExecAdded) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.String(2, &m.ExecID)
}

// TaskExecStarted says that it runs.
type TaskExecStarted struct {
	ContainerID, ExecID string
	Pid                 uint32
}

// Topic implements Event.
func (*TaskExecStarted) Topic() string { return "/tasks/exec-started" }

// Name implements Event.
func (*TaskExecStarted) Name() string { return "containerd.events.TaskExecStarted" }

// Fields implements Message.
func (m *TaskExecStarted) Fields(c *Coder) {
	c.String(1, &m.ContainerID)
	c.String(2, &m.ExecID)
	c.Uint32(3, &m.Pid)
}

// TaskPaused says that a container stands still.
type TaskPaused struct{ ContainerID string }

// Topic implements Event.
func (*TaskPaused) Topic() string { return "/tasks/paused" }

// Name implements Event.
func (*TaskPaused) Name() string { return "containerd.events.TaskPaused" }

// Fields implements Message.
func (m *TaskPaused) Fields(c *Coder) { c.String(1, &m.ContainerID) }

// TaskResumed says that it goes on.
type TaskResumed struct{ ContainerID string }

// Topic implements Event.
func (*TaskResumed) Topic() string { return "/tasks/resumed" }

// Name implements Event.
func (*TaskResumed) Name() string { return "containerd.events.TaskResumed" }

// Fields implements Message.
func (m *TaskResumed) Fields(c *Coder) { c.String(1, &m.ContainerID) }
