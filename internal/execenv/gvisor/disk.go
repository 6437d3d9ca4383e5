package gvisor

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// diskFD is the number that marks the backing file among the descriptors that a
// sandbox is created with. gVisor would pass it on to init under that number;
// the sentry keeps it to itself instead (takeDiskFile).
const diskFD = 4

// takeDiskFile takes the backing file out of the arguments of a sentry. It
// returns nil if there is none.
func takeDiskFile(args []string) ([]string, *os.File) {
	for i, a := range args {
		fd, ok := strings.CutPrefix(a, "--pass-fd=")
		if !ok {
			continue
		}
		fd, ok = strings.CutSuffix(fd, ":"+strconv.Itoa(diskFD))
		if !ok {
			continue
		}
		n, err := strconv.Atoi(fd)
		if err != nil {
			continue
		}
		unix.CloseOnExec(n)
		return append(args[:i:i], args[i+1:]...), os.NewFile(uintptr(n), "disk")
	}
	return args, nil
}

// diskFilesystem is a tmpfs whose contents are in a file of the host and not in
// memory: names, attributes, quotas of bytes and inodes are the same code as
// in the other writable places. All mounts share the file.
type diskFilesystem struct {
	file   *os.File
	memory func() (*pgalloc.MemoryFile, error)
}

func newDiskFilesystem(file *os.File) *diskFilesystem {
	// gVisor does this outside of its system call filter: see the function.
	pgalloc.IMAWorkAroundForMemFile(file.Fd())
	return &diskFilesystem{file: file, memory: sync.OnceValues(func() (*pgalloc.MemoryFile, error) {
		return pgalloc.NewMemoryFile(file, pgalloc.MemoryFileOpts{
			DiskBackedFile:       true,
			DisableIMAWorkAround: true,
			// What programs are told is used of their memory.
			DisableMemoryAccounting: true,
		})
	})}
}

func (*diskFilesystem) Name() string            { return diskType }
func (*diskFilesystem) Release(context.Context) {}

func (d *diskFilesystem) GetFilesystem(ctx context.Context, v *vfs.VirtualFilesystem, creds *auth.Credentials, source string, opts vfs.GetFilesystemOptions) (*vfs.Filesystem, *vfs.Dentry, error) {
	memory, err := d.memory()
	if err != nil {
		return nil, nil, err
	}
	opts.InternalData = tmpfs.FilesystemOpts{MemoryFile: memory}
	return tmpfs.FilesystemType{}.GetFilesystem(ctx, v, creds, source, opts)
}

// provideDisk makes the type known to the sandbox's kernel when init mounts for
// the first time: before, there is no kernel, and after init nobody can mount.
func provideDisk(table *kernel.SyscallTable, disk *diskFilesystem) {
	var once sync.Once
	call := table.Table[unix.SYS_MOUNT]
	inner := call.Fn
	call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		once.Do(func() {
			t.Kernel().VFS().MustRegisterFilesystemType(diskType, disk, &vfs.RegisterFilesystemTypeOptions{AllowUserMount: true})
		})
		return inner(t, number, args)
	}
	table.Table[unix.SYS_MOUNT] = call
}
