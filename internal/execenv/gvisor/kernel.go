package gvisor

import (
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// refuseUserNamespaces takes user namespaces out of the sandboxed kernel, before
// it starts. In one of its own a program could mount: a tmpfs without a limit of
// bytes or inodes, beside the three places that have one.
//
// It is done in the table of system calls because nothing else can: gVisor has
// no such setting, and its seccomp filters know one error number, while a C
// library asks for threads with clone3 and falls back to clone only if that is
// said to be missing. clone3 has to be, since its flags are behind a pointer.
func refuseUserNamespaces(table *kernel.SyscallTable) {
	guard := func(number uintptr, allowed func(arch.SyscallArguments) bool, refusal error) {
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
	noNewUser := func(args arch.SyscallArguments) bool { return args[0].Uint64()&unix.CLONE_NEWUSER == 0 }
	never := func(arch.SyscallArguments) bool { return false }
	guard(unix.SYS_CLONE, noNewUser, linuxerr.EPERM)
	guard(unix.SYS_UNSHARE, noNewUser, linuxerr.EPERM)
	guard(unix.SYS_CLONE3, never, linuxerr.ENOSYS)
	table.Init()
}
