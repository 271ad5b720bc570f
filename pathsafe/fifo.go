package pathsafe

import "golang.org/x/sys/unix"

// Mkfifo makes the FIFO n in d and opens it for reading and writing: the open
// does not wait, and there is a reader and a writer as long as the descriptor
// lives (fifo(7)). The caller owns it; it blocks. A file of that name is EEXIST.
// PolicyState only.
func (d *Dir) Mkfifo(n Name, perm uint32) (int, error) {
	raw, err := d.state(n.String())
	if err != nil {
		return -1, err
	}
	defer d.fd.Release()
	if err := unix.Mknodat(raw, n.String(), unix.S_IFIFO|perm&0o777, 0); err != nil {
		return -1, d.fail("mknodat", n.String(), errnoOf(err))
	}
	fd, err := d.openFIFO(raw, n, unix.O_RDWR)
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Unlinkat(raw, n.String(), 0)
		return -1, err
	}
	return fd, nil
}

// OpenFIFO opens the FIFO n in d, O_RDONLY or O_WRONLY, without waiting for the
// other end: ENXIO for writing without a reader. The caller owns the descriptor,
// which does not block. Anything but a FIFO is ErrType. PolicyState only.
func (d *Dir) OpenFIFO(n Name, mode uint64) (int, error) {
	raw, err := d.state(n.String())
	if err != nil {
		return -1, err
	}
	defer d.fd.Release()
	return d.openFIFO(raw, n, mode)
}

func (d *Dir) openFIFO(raw int, n Name, mode uint64) (int, error) {
	fd, errno := d.open(raw, n.c, mode|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errno != 0 {
		return -1, d.openFailed("openat2", raw, n.String(), errno)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Uid != 0 {
		_ = unix.Close(fd)
		return -1, d.refuse(n.String(), ErrType, "not a FIFO of root's")
	}
	return fd, nil
}
