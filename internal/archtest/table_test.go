package archtest

// row says what one package may import. Standard library packages are free,
// apart from those that rules_test.go forbids everywhere.
type row struct {
	pkg     string   // below the module; a final /... includes everything below
	ours    []string // packages of this module, below it; a final /... as above
	outside []string // packages of other modules; a final /... as above
	why     string   // printed when the row is broken
}

const (
	xsys = "golang.org/x/sys/unix"
	oci  = "github.com/opencontainers/runtime-spec/specs-go/..."
)

// table is checked for everything except test files. A package without a row is
// refused, so that nobody adds one without thinking about its place.
//
//	cmd -> shim -> container -> {rootfs, exec, cgroups/*, pathsafe} -> internal
var table = []row{
	{"internal/linux", nil, []string{xsys}, "it is the floor"},
	{"internal/scan", nil, nil, "it is pure bytes, fuzzed alone"},
	{"internal/exeseal", nil, []string{xsys}, "it comes before everything else that a program does"},
	{"internal/ocijson", nil, nil, "it is pure bytes, fuzzed alone"},
	{"internal/fd", []string{"internal/linux"}, []string{xsys}, "only the floor is below it"},
	{"internal/probe", []string{"internal/linux", "internal/fd"}, []string{xsys}, "only the floor is below it"},
	{"internal/seccomp", []string{"internal/linux"}, []string{xsys, oci, "golang.org/x/net/bpf", "github.com/elastic/go-seccomp-bpf/arch"}, "it compiles a profile to instructions and runs nothing"},
	{"internal/seccomp/gen", nil, []string{"..."}, "it is run by a person, once in a while"},
	{"internal/seccomp/seccomptest", []string{"internal/seccomp"}, []string{"..."}, "it helps tests, and may use libseccomp"},
	{"pathsafe", []string{"internal/linux", "internal/fd", "internal/probe"}, []string{xsys}, "everyone trusts it, so it trusts nobody above"},

	{"internal/nodeconf", []string{"pathsafe", "internal/linux", "internal/scan"}, []string{xsys}, "it reads one file for the node, and knows no container"},

	{"cgroups", []string{"pathsafe", "internal/linux", "internal/fd", "internal/scan", "internal/probe"}, []string{xsys, oci}, "what v1 and v2 agree on knows neither"},
	{"cgroups/v1", []string{"cgroups", "pathsafe", "internal/..."}, []string{xsys, oci}, "v1 and v2 never meet"},
	{"cgroups/v2", []string{"cgroups", "pathsafe", "internal/..."}, []string{xsys, oci, "github.com/cilium/ebpf/..."}, "v1 and v2 never meet"},
	{"cgroups/systemd", []string{"cgroups", "pathsafe", "internal/..."}, []string{xsys, oci, "github.com/coreos/go-systemd/v22/dbus", "github.com/godbus/dbus/v5"}, "it is the only D-Bus client, and leaves the groups to v1 and v2"},

	{"exec/plan", []string{"internal/linux", "internal/fd"}, []string{xsys}, "it is an assembler: it knows Linux, not containers"},
	{"exec", []string{"exec/plan", "internal/linux", "internal/fd", "internal/probe"}, []string{xsys}, "it takes descriptors and bytes, no OCI and no paths"},

	{"container/rootfs", []string{"exec/plan", "pathsafe", "internal/..."}, []string{xsys, oci}, "it prepares mounts and starts nothing"},
	{"container", []string{"container/...", "exec", "exec/plan", "cgroups/...", "pathsafe", "internal/..."}, []string{xsys, oci, "github.com/opencontainers/selinux/...", "github.com/moby/sys/..."}, "the runtime must not know who drives it: no containerd, no protobuf"},

	{"shim/wire", nil, nil, "it is bytes and structures; the generated types cost a third of an idle shim's memory"},
	{"shim/rpc", []string{"shim/wire"}, nil, "it is the protocol between two sockets, and has never heard of tasks"},
	{"shim", []string{"shim/wire", "shim/rpc", "container", "cgroups", "internal/linux", "internal/fd", "internal/nodeconf", "internal/ocijson", "internal/exeseal"}, []string{
		xsys, oci, "github.com/containerd/log", "github.com/pelletier/go-toml/v2",
	}, "it is the protocol and nothing else: if it needs exec or pathsafe, container lacks a method"},
	{"cmd/containerd-shim-ibex-v1", []string{"shim"}, []string{xsys}, "a main is under 30 lines"},
	{"cmd/ibex", []string{"container", "container/...", "cgroups", "exec/plan", "internal/probe", "pathsafe", "internal/exeseal"}, []string{xsys, oci, "github.com/spf13/cobra", "github.com/spf13/pflag"}, "it drives container by hand; what belongs to containerd is shim's"},

	{"internal/ktest", nil, []string{xsys}, "every package's tests use it, so it may use none of them"},
	{"internal/archtest", nil, nil, "it reads the source and nothing else"},
	{"tests/...", []string{"..."}, []string{"..."}, ""},
	{"contrib/...", []string{"..."}, []string{"..."}, ""},
}
