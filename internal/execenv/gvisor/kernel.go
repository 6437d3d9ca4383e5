package gvisor

import (
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// adapt changes the sandboxed kernel before it starts. It is done in the table of
// system calls because nothing else can: gVisor has no settings for it. See ADR
// 0011, 0013 and 0019. disk is the file for a large workspace, or nil.
func adapt(table *kernel.SyscallTable, disk *os.File) {
	refuseUserNamespaces(table)
	refuseAttributes(table)
	counted := &refusals{slots: map[string]*refusalCounts{}}
	counted.count(table)
	theSurvival.refused = counted
	theSurvival.provide(table)
	if disk != nil {
		provideDisk(table, newDiskFilesystem(disk))
	}
	table.Init()
}

// refuseUserNamespaces takes user namespaces out. In one of its own a program
// could mount: a tmpfs without a limit of bytes or inodes, beside the three places
// that have one.
//
// gVisor's seccomp filters cannot do it: they know one error number, while a C
// library asks for threads with clone3 and falls back to clone only if that is
// said to be missing. clone3 has to be, since its flags are behind a pointer.
func refuseUserNamespaces(table *kernel.SyscallTable) {
	noNewUser := func(args arch.SyscallArguments) bool { return args[0].Uint64()&unix.CLONE_NEWUSER == 0 }
	guard(table, unix.SYS_CLONE, noNewUser, linuxerr.EPERM)
	guard(table, unix.SYS_UNSHARE, noNewUser, linuxerr.EPERM)
	guard(table, unix.SYS_CLONE3, never, linuxerr.ENOSYS)
}

// refuseAttributes takes extended attributes out. The sandbox's kernel keeps them
// beside the files and charges them to no quota.
func refuseAttributes(table *kernel.SyscallTable) {
	for _, number := range []uintptr{unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR} {
		guard(table, number, never, linuxerr.EOPNOTSUPP)
	}
}

func never(arch.SyscallArguments) bool { return false }

// guard refuses a system call unless its arguments are allowed.
func guard(table *kernel.SyscallTable, number uintptr, allowed func(arch.SyscallArguments) bool, refusal error) {
	call := table.Table[number]
	inner := call.Fn
	call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if !allowed(args) {
			return 0, nil, refusal
		}
		return inner(t, number, args)
	}
	table.Table[number] = call
}

// observe looks at what a system call returned.
func observe(table *kernel.SyscallTable, number uintptr, look func(t *kernel.Task, args arch.SyscallArguments, n uintptr, err error)) {
	call := table.Table[number]
	inner := call.Fn
	call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, control, err := inner(t, number, args)
		look(t, args, n, err)
		return n, control, err
	}
	table.Table[number] = call
}
