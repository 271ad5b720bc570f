package plan

import "golang.org/x/sys/unix"

// Setns joins a namespace, or several of the process behind a pidfd.
func (b *Builder) Setns(f FD, nstype int) { b.add(opSetns, b.fd(f), num(nstype)) }

// Unshare leaves namespaces.
func (b *Builder) Unshare(flags int) { b.add(opUnshare, num(flags)) }

// Clone forks with clone(2). Both processes go on with the plan, each with its
// own copy of slots and buffers; OnZero sends the child elsewhere. The slot
// holds the child's pid as the parent sees it. The exit signal is SIGCHLD.
//
// A clone that shares memory or signal handlers with its parent is refused: it
// would run on the parent's stack.
func (b *Builder) Clone(flags uint64) Slot {
	return b.addSlot(opClone, num(flags|uint64(unix.SIGCHLD)))
}

// Getpid puts the caller's pid, as its own PID namespace numbers it, into a slot.
func (b *Builder) Getpid() Slot { return b.addSlot(opGetpid) }

// Setsid starts a session.
func (b *Builder) Setsid() { b.add(opSetsid) }

// Ioctl is for requests whose argument is a number, such as TIOCSCTTY.
func (b *Builder) Ioctl(f FD, req uint, arg uintptr) {
	b.add(opIoctl, b.fd(f), num(req), num(arg))
}

// Setgroups sets the supplementary groups.
func (b *Builder) Setgroups(gids []uint32) {
	b.add(opSetgroups, b.ids(gids))
}

// Setresuid sets the real, effective and saved user id.
func (b *Builder) Setresuid(r, e, s uint32) { b.add(opSetresuid, num(r), num(e), num(s)) }

// Setresgid sets the real, effective and saved group id.
func (b *Builder) Setresgid(r, e, s uint32) { b.add(opSetresgid, num(r), num(e), num(s)) }

// Prctl is for the operations whose arguments are numbers.
func (b *Builder) Prctl(op int, a2, a3, a4, a5 uintptr) {
	b.add(opPrctl, num(op), num(a2), num(a3), num(a4), num(a5))
}

// Capset sets the capability sets of the process, bit n for capability n.
func (b *Builder) Capset(effective, permitted, inheritable uint64) {
	b.add(opCapset, num(effective), num(permitted), num(inheritable))
}

// Prlimit sets a resource limit of the process.
func (b *Builder) Prlimit(resource int, cur, limit uint64) {
	b.add(opPrlimit, num(resource), num(cur), num(limit))
}

// SetHostname sets the host name of the UTS namespace.
func (b *Builder) SetHostname(name string) { b.add(opSethostname, b.str(name)) }

// SetDomainname sets the NIS domain name of the UTS namespace.
func (b *Builder) SetDomainname(name string) { b.add(opSetdomainname, b.str(name)) }

// KeyctlJoinSession joins or makes the session keyring of that name.
func (b *Builder) KeyctlJoinSession(name string) { b.add(opKeyctlJoinSession, b.str(name)) }

// RtSigprocmaskClear unblocks every signal.
func (b *Builder) RtSigprocmaskClear() { b.add(opSigmaskClear) }

// RtSigactionDefault resets a signal to its default action. An ignored signal
// stays ignored over execve otherwise.
func (b *Builder) RtSigactionDefault(sig int) { b.add(opSigDefault, num(sig)) }

// Seccomp loads a filter. With SECCOMP_FILTER_FLAG_NEW_LISTENER, Result gives
// the listener.
func (b *Builder) Seccomp(flags uint, filter []unix.SockFilter) {
	b.add(opSeccomp, num(flags), b.filter(filter))
}

// Personality sets the execution domain.
func (b *Builder) Personality(persona uint) { b.add(opPersonality, num(persona)) }

// IoprioSet sets an I/O priority, for which and who as in ioprio_set(2).
func (b *Builder) IoprioSet(which, who, prio int) {
	b.add(opIoprioSet, num(which), num(who), num(prio))
}

// SchedSetattr sets the scheduling policy of the process; attr.Size is filled in.
func (b *Builder) SchedSetattr(attr unix.SchedAttr) {
	b.add(opSchedSetattr, num(attr.Policy), num(attr.Flags), num(attr.Nice), num(attr.Priority),
		num(attr.Runtime), num(attr.Deadline), num(attr.Period), num(attr.Util_min), num(attr.Util_max))
}

// SchedSetaffinity sets the CPUs of the process, bit n of byte n/8 for CPU n.
// The mask is padded to the multiple of 8 bytes that the kernel asks for.
func (b *Builder) SchedSetaffinity(mask []byte) {
	for len(mask)%8 != 0 || len(mask) == 0 {
		mask = append(mask[:len(mask):len(mask)], 0)
	}
	b.add(opSchedSetaffinity, b.bytes(mask))
}

// SetMempolicy sets the NUMA memory policy of the process: a mode with its flags
// and the nodes, bit n of byte n/8 for node n. The kernel counts one bit less than
// it is told (set_mempolicy(2), Bugs).
func (b *Builder) SetMempolicy(mode uint, nodes []byte) {
	bits := uint64(len(nodes))*8 + 1
	for len(nodes)%8 != 0 || len(nodes) == 0 {
		nodes = append(nodes[:len(nodes):len(nodes)], 0)
	}
	b.add(opSetMempolicy, num(mode), b.bytes(nodes), num(bits))
}

// Execve runs a program. What follows in the plan runs only if it fails with
// a tolerated errno.
func (b *Builder) Execve(path string, argv, env []string) {
	p := b.str(path)
	b.add(opExecve, p, b.vec("argv", argv), b.vec("env", env))
}

// ExecveBuf is Execve with the path in a buffer.
func (b *Builder) ExecveBuf(path Buf, argv, env []string) {
	p := b.buf(path, 0)
	b.add(opExecveBuf, p, b.vec("argv", argv), b.vec("env", env))
}

// Exit ends the process.
func (b *Builder) Exit(code int) { b.add(opExit, num(code)) }
