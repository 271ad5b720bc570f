package pathsafe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The few messages of FUSE (include/uapi/linux/fuse.h) that a lookup needs.
const (
	fuseLookup  = 1
	fuseGetattr = 3
	fuseOpen    = 14
	fuseStatfs  = 17
	fuseInit    = 26
)

// fuseServer is a filesystem with a directory "d", a file "f", whose inode
// numbers change at each look, and names "slow*", which are not answered before
// release is closed.
type fuseServer struct {
	dev     int
	release chan struct{}
	once    sync.Once
	asked   chan string // gets the slow names
	inode   atomic.Uint64
}

func mountFuse(t *testing.T, at string) *fuseServer {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: /dev/fuse: %v", err)
	}
	opts := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", dev)
	if err := unix.Mount("ibex-test", at, "fuse", 0, opts); err != nil {
		_ = unix.Close(dev)
		t.Skipf("no FUSE here: mount: %v", err)
	}
	s := &fuseServer{dev: dev, release: make(chan struct{}), asked: make(chan string, 8)}
	done := make(chan struct{})
	go func() { defer close(done); s.serve() }()
	t.Cleanup(func() {
		s.answer()
		_ = unix.Unmount(at, unix.MNT_DETACH) // ends serve
		<-done
		_ = unix.Close(dev)
	})
	return s
}

// answer lets the slow names be answered.
func (s *fuseServer) answer() { s.once.Do(func() { close(s.release) }) }

// attr is struct fuse_attr: inode, 6 times, size, mode, ...
func (s *fuseServer) attr(ino uint64, mode uint32) []byte {
	b := make([]byte, 88)
	binary.NativeEndian.PutUint64(b, ino)
	binary.NativeEndian.PutUint32(b[60:], mode)
	binary.NativeEndian.PutUint32(b[64:], 2)
	return b
}

// entry is struct fuse_entry_out without any time of validity.
func (s *fuseServer) entry(node uint64, mode uint32) []byte {
	b := make([]byte, 40)
	binary.NativeEndian.PutUint64(b, node)
	return append(b, s.attr(s.inode.Add(1)+100, mode)...)
}

func (s *fuseServer) serve() {
	buf := make([]byte, 1<<17)
	modes := map[uint64]uint32{1: unix.S_IFDIR | 0o755, 2: unix.S_IFDIR | 0o755, 3: unix.S_IFREG | 0o644}
	for {
		n, err := unix.Read(s.dev, buf)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil {
			return // ENODEV: unmounted
		}
		op := binary.NativeEndian.Uint32(buf[4:])
		unique := binary.NativeEndian.Uint64(buf[8:])
		node := binary.NativeEndian.Uint64(buf[16:])
		switch op {
		case fuseInit:
			out := make([]byte, 64)
			binary.NativeEndian.PutUint32(out, 7)
			binary.NativeEndian.PutUint32(out[4:], 31)
			binary.NativeEndian.PutUint32(out[12:], 1<<18) // PARALLEL_DIROPS: one slow name is not all names
			binary.NativeEndian.PutUint32(out[20:], 1<<16)
			s.reply(unique, 0, out)
		case fuseGetattr:
			ino := node
			if node != 1 {
				ino = s.inode.Add(1) + 100
			}
			s.reply(unique, 0, append(make([]byte, 16), s.attr(ino, modes[node])...))
		case fuseLookup:
			name := string(buf[40 : n-1])
			switch {
			case name == "d":
				s.reply(unique, 0, s.entry(2, modes[2]))
			case name == "f":
				s.reply(unique, 0, s.entry(3, modes[3]))
			case len(name) > 4 && name[:4] == "slow":
				s.asked <- name
				go func() { <-s.release; s.reply(unique, unix.ENOENT, nil) }()
			default:
				s.reply(unique, unix.ENOENT, nil)
			}
		case fuseOpen:
			s.asked <- "open"
			go func() { <-s.release; s.reply(unique, unix.EIO, nil) }()
		case fuseStatfs:
			s.reply(unique, 0, make([]byte, 80))
		default:
			s.reply(unique, unix.ENOSYS, nil)
		}
	}
}

func (s *fuseServer) reply(unique uint64, errno unix.Errno, data []byte) {
	type header struct {
		len    uint32
		err    int32
		unique uint64
	}
	h := header{uint32(16 + len(data)), -int32(errno), unique}
	msg := append(unsafe.Slice((*byte)(unsafe.Pointer(&h)), 16), data...)
	_, _ = unix.Write(s.dev, msg)
}

// A44: a filesystem in user space that does not answer holds up the call that
// waits for it and no other, and one whose inode numbers change is not trusted
// to be what it was.
func TestAFilesystemThatDoesNotAnswer(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir fuse", "dir other", "link l fuse/slow1")
	s := mountFuse(t, filepath.Join(dir, "fuse"))
	slow := make(chan error, 3)
	for _, call := range []func() error{
		func() error { return second(d.Resolve(inRoot(t, "l"), KindDir)) },
		func() error { return second(d.Stat(inRoot(t, "fuse/slow2"))) },
		func() error { return second(d.ReadHead(inRoot(t, "fuse/f"), make([]byte, 8))) },
	} {
		go func() { slow <- call() }()
		select {
		case <-s.asked:
		case err := <-slow:
			t.Fatalf("did not wait: %v", err)
		case <-time.After(10 * time.Second):
			t.Fatal("never asked")
		}
	}
	// Nothing is locked meanwhile: other lookups and Close go on.
	target, err := d.Resolve(inRoot(t, "other"), KindDir)
	must(t, err)
	must(t, target.Close())
	again, err := d.MkTarget(inRoot(t, "made"), KindDir, 0o755)
	must(t, err)
	must(t, again.Close())
	must(t, d.Close())
	s.answer()
	for range 3 {
		if err := <-slow; !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EIO) {
			t.Error(err)
		}
	}
}

func TestChangingInodeNumbersAreNotTheSameObject(t *testing.T) {
	privateMounts(t)
	d, dir := mountable(t, "dir fuse")
	mountFuse(t, filepath.Join(dir, "fuse"))
	target, err := d.Resolve(inRoot(t, "fuse/d"), KindDir)
	must(t, err)
	defer target.Close()
	if err := d.Verify(target.Path(), target.ID()); !errors.Is(err, ErrRaced) {
		t.Errorf("verified: %v", err)
	}
	// What is mounted there is another filesystem: it verifies.
	id, err := Attach(detachedTmpfs(t), target)
	must(t, err)
	if err := d.Verify(target.Path(), id); err != nil {
		// The lookup may have given the place another inode; then it is refused.
		wantErr(t, err, ErrRaced)
	}
	if _, err := os.Stat(filepath.Join(dir, "fuse")); err != nil {
		t.Error(err)
	}
}
