package wire

// What is spoken on standard input and output (api/runtime/bootstrap/v1 and
// api/types/introspection.proto of containerd), and the options that come there
// and with Create.

// Params is BootstrapParams: what containerd wants started, since 2.3.
type Params struct {
	InstanceID, Namespace     string
	LogLevel                  int32
	TTRPCAddress, GRPCAddress string
	Extensions                []*Extension
	SocketDir                 string
}

// LogLevelDebug is LOG_LEVEL_DEBUG. Those that tell more are below it.
const LogLevelDebug = -4

// Fields implements Message.
func (m *Params) Fields(c *Coder) {
	c.String(1, &m.InstanceID)
	c.String(2, &m.Namespace)
	c.Int32(3, &m.LogLevel)
	c.String(5, &m.TTRPCAddress)
	c.String(6, &m.GRPCAddress)
	Subs(c, 8, &m.Extensions)
	c.String(9, &m.SocketDir)
}

// Extension is something that goes with parameters or a result.
type Extension struct{ Value *Any }

// Fields implements Message.
func (m *Extension) Fields(c *Coder) { Sub(c, 1, &m.Value) }

// Result is BootstrapResult: where the shim listens.
type Result struct {
	Version           int32
	Address, Protocol string
	Extensions        []*Extension
}

// Fields implements Message.
func (m *Result) Fields(c *Coder) {
	c.Int32(1, &m.Version)
	c.String(2, &m.Address)
	c.String(3, &m.Protocol)
	Subs(c, 6, &m.Extensions)
}

// MountCapabilitiesName is the type of an extension that says which mounts the
// shim makes itself. Empty, it means those that the kernel knows.
const MountCapabilitiesName = "containerd.types.MountCapabilities"

// RuntimeInfo answers -info.
type RuntimeInfo struct {
	Name              string
	Version           *RuntimeVersion
	Options, Features *Any
}

// Fields implements Message.
func (m *RuntimeInfo) Fields(c *Coder) {
	c.String(1, &m.Name)
	Sub(c, 2, &m.Version)
	Sub(c, 3, &m.Options)
	Sub(c, 4, &m.Features)
}

// RuntimeVersion is a part of it.
type RuntimeVersion struct{ Version, Revision string }

// Fields implements Message.
func (m *RuntimeVersion) Fields(c *Coder) {
	c.String(1, &m.Version)
	c.String(2, &m.Revision)
}

// RuncOptionsName is the type of RuncOptions.
const RuncOptionsName = "containerd.runc.v1.Options"

// RuncOptions is what clients send to runc's shim.
type RuncOptions struct {
	NoPivotRoot, NoNewKeyring   bool
	ShimCgroup                  string
	IoUID, IoGID                uint32
	BinaryName, Root            string
	SystemdCgroup               bool
	CriuImagePath, CriuWorkPath string
}

// Fields implements Message.
func (m *RuncOptions) Fields(c *Coder) {
	c.Bool(1, &m.NoPivotRoot)
	c.Bool(2, &m.NoNewKeyring)
	c.String(3, &m.ShimCgroup)
	c.Uint32(4, &m.IoUID)
	c.Uint32(5, &m.IoGID)
	c.String(6, &m.BinaryName)
	c.String(7, &m.Root)
	c.Bool(9, &m.SystemdCgroup)
	c.String(10, &m.CriuImagePath)
	c.String(11, &m.CriuWorkPath)
}

// RuntimeOptionsName is the type of RuntimeOptions.
const RuntimeOptionsName = "runtimeoptions.v1.Options"

// RuntimeOptions is what the CRI plugin and ctr send to every other shim.
type RuntimeOptions struct {
	TypeURL, ConfigPath string
	ConfigBody          []byte
}

// Fields implements Message.
func (m *RuntimeOptions) Fields(c *Coder) {
	c.String(1, &m.TypeURL)
	c.String(2, &m.ConfigPath)
	c.Bytes(3, &m.ConfigBody)
}
