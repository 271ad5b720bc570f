package security

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/ibex-run/ibex/internal/ktest"
)

// replace puts a link (or what the description says, see ktest.Tree) in the place
// of something in the image.
func (b *box) replace(name, with string) {
	b.t.Helper()
	must(b.t, os.RemoveAll(filepath.Join(b.root, name)))
	must(b.t, os.MkdirAll(filepath.Dir(filepath.Join(b.root, name)), 0o755))
	ktest.Tree(b.t, b.root, name+" "+with)
}

// An image is somebody else's, and any of its directories may be a link. runc
// mounted procfs where a link led (CVE-2019-19921, CVE-2023-27561,
// CVE-2023-28642), so did youki (CVE-2025-54867); crun resolved links by hand
// (CVE-2019-18837) and runc and crun made files of /dev through a link to the
// host (CVE-2026-41579, CVE-2026-47766, CVE-2026-88264). The kernel's own file
// systems and /dev go to real directories or nowhere.
func TestAnImageWithALinkAtTheMountPointOfAKernelFileSystemIsRefused(t *testing.T) {
	for _, at := range []string{"proc", "sys", "dev", "dev/pts", "dev/mqueue", "sys/fs/cgroup", "sys/fs"} {
		for _, to := range []string{"inside", "/", "..", "../../../../../..", "DECOY", "/tmp", "/proc/self/root", "/proc/1/cwd", "self", "/nowhere"} {
			t.Run(at+" to "+strings.ReplaceAll(to, "/", "|"), func(t *testing.T) {
				host := decoy(t)
				b := newBox(t, "/bin/true")
				must(t, os.Mkdir(filepath.Join(b.root, "inside"), 0o755))
				if to == "self" {
					to = "/" + at
				}
				// Below /dev and /sys the image's own directory is what counts only
				// where the specification mounts nothing on these.
				for _, above := range []string{"/dev", "/sys"} {
					if strings.HasPrefix("/"+at, above+"/") {
						b.dropMount(above)
					}
				}
				b.replace(at, "-> "+strings.ReplaceAll(to, "DECOY", host))
				if _, code, err := b.run(); err == nil {
					t.Errorf("it ran, exit code %d", code)
				}
				b.nothingLeft()
			})
		}
	}
}

func (b *box) dropMount(dest string) {
	var kept []specs.Mount
	for _, m := range b.spec.Mounts {
		if m.Destination != dest {
			kept = append(kept, m)
		}
	}
	b.spec.Mounts = kept
}

// Everywhere else a link of the image is followed, as programs in the container
// would, and that is inside the root: what looks like the host's is the
// container's own. Magic links, which lead outside whatever the root is, are not.
func TestAMountThroughALinkOfTheImageStaysInside(t *testing.T) {
	for _, to := range []string{"/", "/tmp", "..", "../../../../../../tmp", "DECOY", "DECOY/d", "DECOY/new", "/proc/self/root/tmp", "/proc/1/root", "/proc/self/fd/3", "/dev/fd/4", "mnt"} {
		t.Run(strings.ReplaceAll(to, "/", "|"), func(t *testing.T) {
			host := decoy(t)
			b := newBox(t, "/bin/cat", "/proc/self/mountinfo")
			b.replace("mnt", "-> "+strings.ReplaceAll(to, "DECOY", host))
			b.spec.Mounts = append(b.spec.Mounts,
				specs.Mount{Destination: "/mnt/marker", Type: "tmpfs", Source: "marker-" + b.id},
				specs.Mount{Destination: "/mnt/d", Type: "tmpfs", Source: "marker-" + b.id},
				specs.Mount{Destination: "/mnt/file", Type: "bind", Source: "/etc/hostname", Options: []string{"bind"}},
			)
			out, _, err := b.run()
			if n := strings.Count(grep(out, "tmpfs marker-"), "\n"); err == nil && n != 2 {
				t.Errorf("%d of 2 mounts are inside: %s", n, out)
			}
			for _, m := range ktest.Mounts() {
				if m.Source == "marker-"+b.id {
					t.Errorf("the mount is on the host: %s", m.Point)
				}
			}
			b.nothingLeft()
		})
	}
}

func grep(text, what string) string {
	var out strings.Builder
	for l := range strings.Lines(text) {
		if strings.Contains(l, what) {
			out.WriteString(l)
		}
	}
	return out.String()
}

// What is made in /dev without a mount there is made in the image's directory: a
// file that the image has put there must not be followed or handed over.
// runc chowned the target of a /dev/null that was a link (CVE-2026-88265 in
// crun), and bound a terminal to wherever /dev/console led (CVE-2025-52565).
func TestDevicesAreNotMadeThroughTheImage(t *testing.T) {
	for _, name := range []string{"null", "console", "ptmx", "tty", "stdin", "fd", "pts"} {
		for _, what := range []string{"-> DECOY/null", "-> ../../../../../../../..DECOY/null", "= a file", "|", "/", "c 1 5"} {
			for _, terminal := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %v", name, strings.ReplaceAll(what, "/", "|"), terminal), func(t *testing.T) {
					host := decoy(t)
					b := newBox(t, "/bin/ls", "-l", "/dev/")
					for _, m := range []string{"/dev", "/dev/shm", "/dev/mqueue"} {
						b.dropMount(m)
					}
					if terminal {
						b.spec.Process.Terminal = true
					} else {
						b.dropMount("/dev/pts")
					}
					if what == "/" {
						b.replace("dev/"+name, "")
					}
					must(t, os.RemoveAll(filepath.Join(b.root, "dev", name)))
					if what == "/" {
						must(t, os.Mkdir(filepath.Join(b.root, "dev", name), 0o755))
					} else {
						ktest.Tree(t, b.root, "dev/"+name+" "+strings.ReplaceAll(what, "DECOY", host))
					}
					c, err := b.create()
					if err == nil {
						b.remove(c)
					}
					b.nothingLeft()
				})
			}
		}
	}
}

// The terminal of a container comes from the devpts that was mounted for it, and
// /dev/console is that terminal, whatever the image has in its /dev.
func TestTheConsoleIsTheTerminalWhateverTheImageHasThere(t *testing.T) {
	for _, what := range []string{"dev/console -> DECOY/null", "dev/ptmx -> DECOY/null", "dev/console = x", "dev/console -> /proc/kcore", "dev/pts/0 = x"} {
		t.Run(strings.ReplaceAll(what, "/", "|"), func(t *testing.T) {
			host := decoy(t)
			b := newBox(t, "/bin/stat", "-c", "%F %t", "/dev/console")
			b.spec.Process.Terminal = true
			if strings.HasPrefix(what, "dev/pts") {
				must(t, os.Mkdir(filepath.Join(b.root, "dev/pts"), 0o755))
			}
			ktest.Tree(t, b.root, strings.ReplaceAll(what, "DECOY", host))
			c := b.start()
			var buf [256]byte
			n, err := c.Init().Console().Read(buf[:])
			if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, "character special file 88") { // 136, Unix98 pty
				t.Errorf("/dev/console: %q, %v", got, err)
			}
		})
	}
}

// The device file that covers a masked file was once the image's own /dev/null,
// and a link there made a mask into a way to write core_pattern (CVE-2025-31133
// in runc, CVE-2025-62161 in youki). Masks come from the host's null device.
func TestMasksHoldWhateverTheImagesNullDeviceIs(t *testing.T) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	must(t, err)
	for _, null := range []string{"-> /proc/sys/kernel/core_pattern", "|", "= a file", "c 1 5", "-> /nowhere"} {
		t.Run(strings.ReplaceAll(null, "/", "|"), func(t *testing.T) {
			b := newBox(t, "/bin/sh", "-c", "stat -c '%n %F %t:%T' /secret /proc/keys; ls /secrets; echo x > /secret; echo x > /proc/keys; echo x > /secrets/y; true")
			for _, m := range []string{"/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"} {
				b.dropMount(m)
			}
			ktest.Tree(t, b.root, "dev/null "+null+"\nsecret = hidden\nsecrets/\nsecrets/one = hidden")
			b.spec.Linux.MaskedPaths = append(b.spec.Linux.MaskedPaths, "/secret", "/secrets")
			out, _, err := b.run()
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"/secret character special file 1:3\n", "/proc/keys character special file 1:3\n", "can't create /secrets/y: Read-only file system"} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in %q", want, out)
				}
			}
			if strings.Contains(out, "one") {
				t.Errorf("the masked directory is not empty: %q", out)
			}
			if now, _ := os.ReadFile("/proc/sys/kernel/core_pattern"); string(now) != string(pattern) {
				t.Errorf("core_pattern of the host is %q", now)
			}
			b.nothingLeft()
		})
	}
}

// crun 1.31 made the root read-only last, through /proc/self/fd inside the
// container, whose /proc the image had chosen (CVE-2026-115521); runc before
// 1.5.3 lost nosuid and its kind on the way. Here the attribute is added to the
// mount by descriptor.
func TestAReadOnlyRootIsReadOnlyAndKeepsItsOtherFlags(t *testing.T) {
	b := newBox(t, "/bin/sh", "-c", "grep '^[^/]*/[^ ]* / ' /proc/self/mountinfo; echo x > /x; echo x > /tmp/x")
	b.spec.Root.Readonly = true
	b.layers = append(b.layers, rootLayer(b.root, "nosuid", "nodev"))
	must(t, os.MkdirAll(filepath.Join(b.root, "proc/self/fd"), 0o755))
	out, code, err := b.run()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(out, "Read-only file system") != 2 || code == 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	line := grep(out, " / ")
	for _, flag := range []string{"ro", "nosuid", "nodev"} {
		if !strings.Contains(line, " "+flag+",") && !strings.Contains(line, ","+flag) {
			t.Errorf("no %s: %s", flag, line)
		}
	}
}

// The host's mounts keep their propagation, and what the container mounts does
// not appear there, with a create that fails at any place as well.
func TestTheHostsMountsStayAsTheyAre(t *testing.T) {
	dir := filepath.Join(scratch.Dir, "shared")
	must(t, os.Mkdir(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	defer unix.Unmount(dir, unix.MNT_DETACH) //nolint:errcheck // the end of the run looks for it
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	before := propagations(dir)
	for _, propagation := range []string{"", "private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable"} {
		for _, fail := range []bool{false, true} {
			b := newBox(t, "/bin/true")
			must(t, os.MkdirAll(filepath.Join(dir, b.id, "bin"), 0o755))
			for _, d := range []string{"proc", "dev", "sys"} {
				must(t, os.MkdirAll(filepath.Join(dir, b.id, d), 0o755))
			}
			must(t, copyFile(busybox, filepath.Join(dir, b.id, "bin/true")))
			b.spec.Root.Path = filepath.Join(dir, b.id)
			b.spec.Linux.RootfsPropagation = propagation
			if fail {
				b.spec.Process.Args = []string{"/nothing"}
			}
			if _, code, err := b.run(); (err != nil) != fail || code != 0 {
				t.Errorf("propagation %q: exit code %d, %v", propagation, code, err)
			}
			if after := propagations(dir); after != before {
				t.Errorf("propagation %q: before %s, after %s", propagation, before, after)
			}
		}
	}
}

// propagations is the state of dir's mount and of the root's, and what is below.
func propagations(dir string) string {
	var out []string
	for _, m := range ktest.Mounts() {
		if m.Point == "/" || m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
			out = append(out, m.Point+" "+strings.Join(m.Propagation, " "))
		}
	}
	return strings.Join(out, "; ")
}
