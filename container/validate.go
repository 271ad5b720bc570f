package container

import (
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// validate refuses what is wrong and what is not there yet. A field that is
// neither honoured nor refused here is a bug.
func validate(s *specs.Spec) error {
	if !strings.HasPrefix(s.Version, "1.") {
		return invalid("ociVersion", "%q: want 1.x", s.Version)
	}
	for _, c := range []func(*specs.Spec) error{
		validatePlatform, validateRoot, validateNamespaces, validateMappings, validateTime, validateMounts, validateLinux, validateHooks,
	} {
		if err := c(s); err != nil {
			return err
		}
	}
	if s.Process == nil {
		return nil // needed to start the container, not to create it
	}
	return validateProcess(s.Process)
}

func validatePlatform(s *specs.Spec) error {
	switch {
	case s.Linux == nil:
		return invalid("linux", "missing")
	case s.Windows != nil || s.Solaris != nil || s.VM != nil || s.ZOS != nil || s.FreeBSD != nil:
		return invalid("windows, solaris, vm, zos, freebsd", "this is a Linux runtime")
	}
	return nil
}

func validateRoot(s *specs.Spec) error {
	if s.Root == nil || s.Root.Path == "" || hasNUL(s.Root.Path) {
		return invalid("root.path", "missing, or with a NUL byte")
	}
	return nil
}

func validateNamespaces(s *specs.Spec) error {
	seen := map[specs.LinuxNamespaceType]bool{}
	for i, n := range s.Linux.Namespaces {
		field := fmt.Sprintf("linux.namespaces[%d] (%s)", i, n.Type)
		if _, ok := nsFlags[n.Type]; !ok {
			return invalid(field, "unknown type")
		}
		if seen[n.Type] {
			return invalid(field, "named twice")
		}
		if n.Path != "" && !path.IsAbs(n.Path) {
			return invalid(field, "path %q is not absolute", n.Path)
		}
		seen[n.Type] = true
	}
	switch {
	case !seen[specs.MountNamespace]:
		// Without one, the host's own mounts would be rearranged.
		return invalid("linux.namespaces", "a mount namespace is required")
	case s.Hostname != "" && !seen[specs.UTSNamespace]:
		return invalid("hostname", "needs a UTS namespace, it would change the host's")
	case s.Domainname != "" && !seen[specs.UTSNamespace]:
		return invalid("domainname", "needs a UTS namespace, it would change the host's")
	}
	return nil
}

// procMounts are the files below /proc that lxcfs and the like provide.
var procMounts = []string{"cpuinfo", "diskstats", "meminfo", "stat", "swaps", "uptime", "loadavg", "slabinfo", "net/dev", "sys/kernel/ns_last_pid", "sys/crypto/fips_enabled"}

// validateMounts keeps mounts off /proc, where they could redirect what the
// runtime writes there (CVE-2019-16884).
func validateMounts(s *specs.Spec) error {
	for i, m := range s.Mounts {
		dest := path.Clean("/" + m.Destination)
		if dest == "/proc" && m.Type != "proc" && !isBind(m) {
			return invalid(fmt.Sprintf("mounts[%d].destination", i), "/proc takes a mount of type proc only")
		}
		below, ok := strings.CutPrefix(dest, "/proc/")
		if !ok {
			continue
		}
		allowed := false
		for _, f := range procMounts {
			allowed = allowed || f == below
		}
		if !allowed {
			return invalid(fmt.Sprintf("mounts[%d].destination", i), "%q: mounts inside /proc are limited to %s", dest, strings.Join(procMounts, ", "))
		}
	}
	return nil
}

func isBind(m specs.Mount) bool {
	if m.Type == "bind" {
		return true
	}
	for _, o := range m.Options {
		if o == "bind" || o == "rbind" {
			return true
		}
	}
	return false
}

func validateLinux(s *specs.Spec) error {
	l := s.Linux
	switch {
	case len(l.NetDevices) > 0:
		return unsupported("linux.netDevices")
	case l.IntelRdt != nil:
		return unsupported("linux.intelRdt")
	case l.MountLabel != "":
		return unsupported("linux.mountLabel")
	}
	switch strings.TrimPrefix(l.RootfsPropagation, "r") {
	case "", "private", "shared", "slave", "unbindable":
	default:
		return invalid("linux.rootfsPropagation", "%q", l.RootfsPropagation)
	}
	for _, list := range []struct {
		field string
		paths []string
	}{{"linux.maskedPaths", l.MaskedPaths}, {"linux.readonlyPaths", l.ReadonlyPaths}} {
		for i, p := range list.paths {
			if !path.IsAbs(p) || hasNUL(p) {
				return invalid(fmt.Sprintf("%s[%d]", list.field, i), "%q is not an absolute path", p)
			}
		}
	}
	return validateSysctls(s)
}

// validateProcess checks what does not depend on the container.
func validateProcess(p *specs.Process) error {
	switch {
	case len(p.Args) == 0:
		return invalid("process.args", "empty")
	case !path.IsAbs(p.Cwd):
		return invalid("process.cwd", "%q is not absolute", p.Cwd)
	}
	for i, a := range p.Args {
		if hasNUL(a) {
			return invalid(fmt.Sprintf("process.args[%d]", i), "NUL byte")
		}
	}
	for i, e := range p.Env {
		if hasNUL(e) {
			return invalid(fmt.Sprintf("process.env[%d]", i), "NUL byte")
		}
	}
	return nil
}
