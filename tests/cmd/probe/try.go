package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// try prints "NAME ok" or "NAME" and the error for calls that a container with
// few privileges must not be able to make.
func try() error {
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"mount", func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"write-proc-sys", func() error { return write("/proc/sys/kernel/hostname") }},
		{"write-sysrq", func() error { return write("/proc/sysrq-trigger") }},
		{"write-root", func() error { return write("/made-by-probe") }},
		{"write-sys", func() error { return write("/sys/made-by-probe") }},
		{"read-kcore", func() error { return read("/proc/kcore") }},
		{"list-firmware", func() error { return list("/sys/firmware") }},
		{"mknod-kmsg", func() error { return unix.Mknod("/tmp/kmsg", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))) }},
		{"open-kmsg", func() error { return read("/tmp/kmsg") }},
		{"sethostname", func() error { return unix.Sethostname([]byte("probe")) }},
		{"unshare-mount", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"setuid-root", func() error { return unix.Setuid(0) }},
	} {
		if err := c.call(); err != nil {
			fmt.Println(c.name, err)
			continue
		}
		fmt.Println(c.name, "ok")
	}
	return nil
}

func write(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return unwrap(err)
	}
	return f.Close()
}

// read wants at least one byte: a masked file is empty.
func read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return unwrap(err)
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 1))
	if n == 1 {
		return nil
	}
	return unwrap(err)
}

// list wants at least one name: a masked directory is empty.
func list(path string) error {
	names, err := os.ReadDir(path)
	if err == nil && len(names) == 0 {
		return fmt.Errorf("empty")
	}
	return unwrap(err)
}

func unwrap(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
