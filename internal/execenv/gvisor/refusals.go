package gvisor

import (
	"encoding/json"
	"maps"
	"path"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/guest"
)

// refusals counts, in the sandboxed kernel, what a limit refused, for each slot in
// which a command runs. How full a place is at the end of a command says neither
// that it was full before nor who filled it; what a call returned says both.
//
// A command cannot lower or read the counters. Each refusal costs it a lookup; a
// call that is not refused costs one comparison more.
type refusals struct {
	mu    sync.Mutex
	slots map[string]*refusalCounts // as many as slots were ever used
	pids  int64                     // of the process limit's own count, how many are in slots
}

type refusalCounts [guest.Counters]uint64

// count makes a table of system calls count.
func (r *refusals) count(table *kernel.SyscallTable) {
	// Which argument is the file that is written to.
	for number, fd := range map[uintptr]int{
		unix.SYS_WRITE: 0, unix.SYS_PWRITE64: 0, unix.SYS_WRITEV: 0, unix.SYS_PWRITEV: 0, unix.SYS_PWRITEV2: 0,
		unix.SYS_FALLOCATE: 0, unix.SYS_FTRUNCATE: 0, unix.SYS_FSYNC: 0, unix.SYS_FDATASYNC: 0,
		unix.SYS_SENDFILE: 0, unix.SYS_SPLICE: 2, unix.SYS_COPY_FILE_RANGE: 2,
	} {
		observe(table, number, func(t *kernel.Task, args arch.SyscallArguments, _ uintptr, err error) {
			if is(err, linuxerr.ENOSPC) && isFile(t, args[fd].Int()) {
				r.add(t, guest.RefusedDisk)
			}
		})
	}
	for _, number := range []uintptr{unix.SYS_WRITE, unix.SYS_PWRITE64} {
		observe(table, number, func(t *kernel.Task, args arch.SyscallArguments, n uintptr, err error) {
			if err == nil && uint(n) < args[2].SizeT() && isFullFile(t, args[0].Int()) {
				r.add(t, guest.RefusedDisk)
			}
		})
	}
	for _, number := range []uintptr{unix.SYS_TRUNCATE, unix.SYS_CLOSE} {
		observe(table, number, func(t *kernel.Task, _ arch.SyscallArguments, _ uintptr, err error) {
			if is(err, linuxerr.ENOSPC) {
				r.add(t, guest.RefusedDisk)
			}
		})
	}
	for _, number := range []uintptr{
		unix.SYS_OPEN, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CREAT, unix.SYS_MKDIR, unix.SYS_MKDIRAT,
		unix.SYS_MKNOD, unix.SYS_MKNODAT, unix.SYS_SYMLINK, unix.SYS_SYMLINKAT, unix.SYS_LINK, unix.SYS_LINKAT,
		unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_BIND,
	} {
		observe(table, number, func(t *kernel.Task, _ arch.SyscallArguments, _ uintptr, err error) {
			if is(err, linuxerr.ENOSPC) {
				r.add(t, lacking(t))
			}
		})
	}
	for _, number := range []uintptr{unix.SYS_CLONE, unix.SYS_FORK, unix.SYS_VFORK} {
		observe(table, number, func(t *kernel.Task, _ arch.SyscallArguments, _ uintptr, err error) {
			if is(err, linuxerr.EAGAIN) {
				r.addProcess(t)
			}
		})
	}
	r.countUnseen(table)
	table.Table[guest.RefusalsCall] = kernel.Syscall{Name: "refusals", Fn: r.read}
}

// countUnseen counts what may be refused without a call that says so.
func (r *refusals) countUnseen(table *kernel.SyscallTable) {
	observe(table, unix.SYS_MMAP, func(t *kernel.Task, args arch.SyscallArguments, _ uintptr, err error) {
		flags := args[3].Uint()
		if err == nil && flags&unix.MAP_SHARED != 0 && flags&unix.MAP_ANONYMOUS == 0 {
			r.add(t, guest.UnseenWrites)
		}
	})
	for _, number := range []uintptr{unix.SYS_IO_SUBMIT, unix.SYS_IO_URING_ENTER} {
		observe(table, number, func(t *kernel.Task, _ arch.SyscallArguments, _ uintptr, err error) {
			if err == nil {
				r.add(t, guest.UnseenWrites)
			}
		})
	}
}

// is looks at an error without translating it: most calls return none.
func is(err error, errno *errors.Error) bool {
	return err != nil && linuxerr.Equals(errno, err)
}

// isFile tells files from what says ENOSPC by its nature, such as /dev/full.
func isFile(t *kernel.Task, fd int32) bool {
	file := t.GetFile(fd)
	if file == nil {
		return false
	}
	defer file.DecRef(t)
	st, err := file.Stat(t, vfs.StatOptions{Mask: unix.STATX_TYPE})
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// isFullFile looks at a file of which a call wrote less than it was given.
func isFullFile(t *kernel.Task, fd int32) bool {
	if !isFile(t, fd) {
		return false
	}
	file := t.GetFile(fd)
	if file == nil {
		return false
	}
	defer file.DecRef(t)
	st, err := file.StatFS(t)
	return err == nil && st.Blocks > 0 && st.BlocksAvailable == 0
}

// lacking says what there was too little of for a new name: bytes if a place has
// none left and all have inodes, and inodes otherwise.
func lacking(t *kernel.Task) int {
	root := t.MountNamespace().Root(t)
	defer root.DecRef(t)
	counter := guest.RefusedInodes
	for _, place := range writablePlaces {
		st, err := t.Kernel().VFS().StatFSAt(t, t.Credentials(), &vfs.PathOperation{
			Root: root, Start: root, Path: fspath.Parse(place), FollowFinalSymlink: true,
		})
		switch {
		case err != nil:
		case st.FilesFree == 0:
			return guest.RefusedInodes
		case st.BlocksAvailable == 0:
			counter = guest.RefusedDisk
		}
	}
	return counter
}

// writablePlaces are where guest.Init mounts: see containerSpec.
var writablePlaces = []string{execenv.Workspace, "/tmp", "/dev/shm"}

// slotOf is the slot that a command's task is in, and the group of its area.
func slotOf(t *kernel.Task) (slot, group string, ok bool) {
	g := t.Cgroup2()
	if g == nil {
		return "", "", false
	}
	group, slot = path.Split(g.Path())
	group = path.Clean(group)
	return slot, group, path.Base(group) == string(programs)
}

func (r *refusals) add(t *kernel.Task, counter int) {
	if slot, _, ok := slotOf(t); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.of(slot)[counter]++
	}
}

// addProcess counts a process that could not be made, if the process limit is why:
// a program can also give itself a limit.
func (r *refusals) addProcess(t *kernel.Task) {
	slot, group, ok := slotOf(t)
	if !ok {
		return
	}
	g, err := t.Kernel().Cgroup2FS().FindCgroup(t, group)
	if err != nil {
		return
	}
	events, err := g.ReadControl(t, "pids.events")
	if err != nil {
		return
	}
	hits, err := answer.ParsePIDsHits(events)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if hits > r.pids {
		r.pids++
		r.of(slot)[guest.RefusedPIDs]++
	}
}

// of returns a slot's counters. mu is held.
func (r *refusals) of(slot string) *refusalCounts {
	c, ok := r.slots[slot]
	if !ok {
		c = &refusalCounts{}
		r.slots[slot] = c
	}
	return c
}

// dump is all that was counted, for load.
func (r *refusals) dump() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text, _ := json.Marshal(countedRefusals{r.slots, r.pids})
	return string(text)
}

// load takes over what another one had counted.
func (r *refusals) load(text string) {
	var c countedRefusals
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		state.Failf("cannot read what was refused before the checkpoint: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.slots, c.Slots)
	r.pids = c.PIDs
}

type countedRefusals struct {
	Slots map[string]*refusalCounts
	PIDs  int64
}

// read is the system call guest.RefusalsCall.
func (r *refusals) read(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	slot, counter := args[0].Uint(), args[1].Uint()
	if t.ThreadGroup() != t.Kernel().GlobalInit() || counter >= guest.Counters {
		return 0, nil, linuxerr.ENOSYS
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.slots[strconv.FormatUint(uint64(slot), 10)]
	if !ok {
		return 0, nil, nil
	}
	return uintptr(c[counter]), nil, nil
}
