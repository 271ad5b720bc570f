package security

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ibex-run/ibex/container"
)

// A process of the container cannot do anything about a program that the runtime
// starts beside it, but it can about the moments before: for some microseconds
// the runtime itself, root on the host, is visible in the container's PID
// namespace. runc once came there with a descriptor of the host's root and let
// itself be traced (CVE-2016-9962); lxc-attach with one of /proc
// (CVE-2016-8649); and whoever can open /proc/PID/exe has the runtime's own
// binary (CVE-2019-5736). The spy stops each process that appears and tries
// everything: see tests/cmd/spy.
func TestASpyFindsNothingOfTheHostInWhatIsStartedBesideIt(t *testing.T) {
	for _, v := range []struct {
		name   string
		change func(*box)
		may    func(find string) bool // beyond what is allowed to all
	}{
		{"default capabilities", func(*box) {}, nil},
		{"root of a user namespace", func(b *box) { b.userns(); b.caps("CAP_SYS_PTRACE", "CAP_SYS_ADMIN") }, nil},
		{"uid 1000", func(b *box) {
			b.spec.Process.User = specs.User{UID: 1000, GID: 1000}
			b.spec.Process.Capabilities = &specs.LinuxCapabilities{}
		}, nil},
		// Who has CAP_SYS_PTRACE may look. What there is to see is the point: the
		// process's own stdio, its socket to the runtime, no right beyond its own.
		{"CAP_SYS_PTRACE", func(b *box) { b.caps("CAP_SYS_PTRACE") }, tracerMay},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBox(t, "/bin/spy")
			v.change(b)
			finds, seen, early := spied(t, b, func(c *container.Container) {
				for range 150 {
					if _, code, err := b.exec(c, nil, "/bin/true"); err != nil || code != 0 {
						t.Fatalf("exec beside the spy: code %d, %v", code, err)
					}
				}
			})
			t.Logf("%d seen, %d of them before execve", seen, early)
			if early == 0 {
				t.Error("the spy was never in time: this proves nothing")
			}
			caps := fmt.Sprintf("CapPrm %016x", mask(b.spec.Process.Capabilities.Permitted))
			bnd := fmt.Sprintf("CapBnd %016x", mask(b.spec.Process.Capabilities.Bounding))
			for _, f := range finds {
				// status is for everyone's eyes; the values must be the container's.
				if f == caps || f == bnd || strings.HasPrefix(f, "Uid "+strconv.Itoa(int(b.spec.Process.User.UID))+" ") {
					continue
				}
				if v.may == nil || !v.may(f) {
					t.Errorf("the spy got: %s", f)
				}
			}
		})
	}
}

// tracerMay is what CAP_SYS_PTRACE in the first user namespace gives.
func tracerMay(find string) bool {
	what, detail, _ := strings.Cut(find, " ")
	switch what {
	case "root", "cwd":
		return detail == "/"
	case "fd", "pidfd_getfd":
		return strings.HasPrefix(detail, "pipe:") || strings.HasPrefix(detail, "socket:") || detail == "/dev/null"
	case "open", "write", "list", "ptrace", "process_vm_readv":
		return true // its memory is a copy, see TestTheMemoryOfAStartIsACopy
	case "namespace": // a container's, and not the host's
		kind, _, _ := strings.Cut(detail, ":")
		host, err := os.Readlink("/proc/self/ns/" + kind)
		return err == nil && detail != host
	case "exe":
		return true // see exe_test.go
	}
	return false
}

// The containers of a pod may share a PID namespace, and then the first process of
// each is set up under the eyes of the others. On kernels that can make procfs
// for another namespace it comes there with nothing left but what an exec has.
// With hooks, which want to know its number before the root is entered, and with
// a user namespace, the set-up goes on inside: then that it is non-dumpable is
// what keeps it from all but CAP_SYS_PTRACE of the first user namespace.
func TestASpyInAPodFindsNothingInTheNextContainer(t *testing.T) {
	for _, v := range []struct {
		name   string
		change func(*box) // of the spy and of the next container
		hooks  bool
		may    func(find string) bool
	}{
		{"default capabilities", func(*box) {}, false, nil},
		{"default capabilities, hooks", func(*box) {}, true, nil},
		{"a user namespace", func(b *box) { b.userns(); b.caps("CAP_SYS_PTRACE", "CAP_SYS_ADMIN") }, false, nil},
		{"CAP_SYS_PTRACE", func(b *box) { b.caps("CAP_SYS_PTRACE") }, false, tracerMay},
	} {
		t.Run(v.name, func(t *testing.T) {
			b := newBox(t, "/bin/spy")
			v.change(b)
			finds, seen, early := spied(t, b, func(c *container.Container) {
				for range 30 {
					next := newBox(t, "/bin/true")
					v.change(next)
					for i := range next.spec.Linux.Namespaces {
						n := &next.spec.Linux.Namespaces[i]
						for kind, file := range map[specs.LinuxNamespaceType]string{specs.PIDNamespace: "pid", specs.UserNamespace: "user"} {
							if n.Type == kind {
								n.Path = fmt.Sprintf("/proc/%d/ns/%s", c.Init().PID(), file)
							}
						}
					}
					if v.hooks {
						next.spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/true"}}}
					}
					if _, code, err := next.run(); err != nil || code != 0 {
						t.Fatalf("a container beside the spy: code %d, %v", code, err)
					}
				}
			})
			t.Logf("%d seen, %d of them before execve", seen, early)
			if early == 0 {
				t.Error("the spy was never in time: this proves nothing")
			}
			caps := fmt.Sprintf("%016x", mask(b.spec.Process.Capabilities.Permitted))
			for _, f := range finds {
				what, detail, _ := strings.Cut(f, " ")
				// What everyone may read tells of rights, and does not give them.
				if what == "Uid" || strings.HasPrefix(what, "Cap") && (v.may == nil || detail == caps) {
					continue
				}
				if v.may == nil || !v.may(f) {
					t.Errorf("the spy got: %s", f)
				}
			}
		})
	}
}

// spied runs the spy in b while beside starts processes.
func spied(t *testing.T, b *box, beside func(*container.Container)) (finds []string, seen, early int) {
	t.Helper()
	inR, inW, err := os.Pipe()
	must(t, err)
	outR, outW, err := os.Pipe()
	must(t, err)
	defer outR.Close()
	b.stdio = container.Stdio{Stdin: inR, Stdout: outW, Stderr: outW}
	c := b.start()
	inR.Close()
	outW.Close()
	lines := bufio.NewScanner(outR)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the spy says %q", lines.Text())
	}
	beside(c)
	inW.Close()
	for lines.Scan() {
		text := lines.Text()
		if f, ok := strings.CutPrefix(text, "find "); ok {
			finds = append(finds, f)
		} else if _, err := fmt.Sscanf(text, "seen %d %d", &seen, &early); err != nil {
			t.Fatalf("the spy says %q", text)
		}
	}
	<-c.Init().Done()
	return finds, seen, early
}
