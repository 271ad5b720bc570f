package main

// absent stands for a call that an interface does not have.
const absent = 0xffff

// armPrivateCode is where ARM's private calls, 0x0f0000 + n, stand in the
// table, so that all codes are small; package seccomp maps them back.
const armPrivateCode = 960

// armPrivate: arch/arm/include/uapi/asm/unistd.h, __ARM_NR_BASE + n.
var armPrivate = map[string]int{
	"breakpoint": 1, "cacheflush": 2, "usr26": 3, "usr32": 4, "set_tls": 5, "get_tls": 6,
}

// x32Only are the calls that x32 has a number of its own for:
// arch/x86/entry/syscalls/syscall_64.tbl, abi "x32". The list is closed, the
// table says: "This is the end of the legacy syscalls".
var x32Only = map[string]int{
	"rt_sigaction": 512, "rt_sigreturn": 513, "ioctl": 514, "readv": 515, "writev": 516,
	"recvfrom": 517, "sendmsg": 518, "recvmsg": 519, "execve": 520, "ptrace": 521,
	"rt_sigpending": 522, "rt_sigtimedwait": 523, "rt_sigqueueinfo": 524, "sigaltstack": 525,
	"timer_create": 526, "mq_notify": 527, "kexec_load": 528, "waitid": 529,
	"set_robust_list": 530, "get_robust_list": 531, "vmsplice": 532, "move_pages": 533,
	"preadv": 534, "pwritev": 535, "rt_tgsigqueueinfo": 536, "recvmmsg": 537, "sendmmsg": 538,
	"process_vm_readv": 539, "process_vm_writev": 540, "setsockopt": 541, "getsockopt": 542,
	"io_setup": 543, "io_submit": 544, "execveat": 545, "preadv2": 546, "pwritev2": 547,
}

// notX32 are the calls of syscall_64.tbl with abi "64" that x32 has not at all.
var notX32 = []string{
	"uselib", "_sysctl", "create_module", "get_kernel_syms", "query_module", "nfsservctl",
	"set_thread_area", "get_thread_area", "epoll_ctl_old", "epoll_wait_old", "vserver",
	"uretprobe", "uprobe", "map_shadow_stack",
}

// x32 derives the x32 interface from amd64's: the common calls share their
// numbers, without the bit that marks an x32 call.
func x32(amd64 map[string]int) map[string]int {
	table := map[string]int{}
	for name, n := range amd64 {
		table[name] = n
	}
	for _, name := range notX32 {
		delete(table, name)
	}
	for name, n := range x32Only {
		table[name] = n
	}
	return table
}
