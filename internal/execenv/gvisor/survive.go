package gvisor

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/host"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/agentdock/agentdock/internal/guest"
)

// survival makes commands outlive a checkpoint, in the sandbox's kernel. gVisor
// restores what its container started and kills what was started in it later: it
// takes whoever asked for that to be gone. Here the one who asked is still there,
// and holds the other ends of the same pipes.
//
// Three things are in the way, and undone in this order. A file of the host that a
// command was given is marked as one that is not there after a restore: before the
// checkpoint, those that the service will hand over again are given a name for that
// (keep, arm). A restored process is killed if its origin is an exec: in the
// restored kernel, before any of it runs, they become children of init (revive).
// And gVisor's list of them, by which they are waited for and signalled, is empty:
// it is filled from the checkpoint (enlist).
type survival struct {
	mu   sync.Mutex
	keep map[uint64]bool
	// revived are the commands of the restored kernel until they are on the list.
	revived []survivor
	refused *refusals
}

// survivor is one entry of gVisor's list of commands.
type survivor struct {
	pid      int64
	group    *kernel.ThreadGroup
	terminal *host.TTYFileDescription
}

// survivors goes into the checkpoint.
type survivors struct {
	list []survivor
	// refused is what refusals has counted, as JSON.
	refused string
}

// theSurvival is the one of this process, which is one sandbox's kernel.
var theSurvival = &survival{keep: map[uint64]bool{}}

const survivorsKey = "agentdock.survivors"

// provide adds the system call guest.CheckpointCall.
func (s *survival) provide(table *kernel.SyscallTable) {
	table.Table[guest.CheckpointCall] = kernel.Syscall{Name: "checkpoint", Fn: s.call}
}

func (s *survival) call(t *kernel.Task, _ uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	k := t.Kernel()
	if t.ThreadGroup() != k.GlobalInit() {
		return 0, nil, linuxerr.ENOSYS
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		switch args[0].Uint() {
		case guest.CheckpointKeep:
			s.keep[args[1].Uint64()] = true
		case guest.CheckpointArm:
			s.arm(t, k)
		case guest.CheckpointDone:
			s.enlist(k)
		default:
			return linuxerr.EINVAL
		}
		return nil
	}()
	if err != nil {
		t.Warningf("cannot get ready for a checkpoint: %v", err)
		return 0, nil, linuxerr.EIO
	}
	return 0, nil, nil
}

// arm names the files that are to be kept, and puts the list into the checkpoint.
func (s *survival) arm(t *kernel.Task, k *kernel.Kernel) {
	container := k.ContainerName(t.ContainerID())
	for _, task := range k.TaskSet().Root.Tasks() {
		fds := task.FDTable()
		if fds == nil {
			continue
		}
		fds.ForEach(t, func(_ int32, file *vfs.FileDescription, _ kernel.FDFlags) bool {
			s.name(file, container)
			return true
		})
	}
	s.keep = map[uint64]bool{}
	k.PopCheckpointState(survivorsKey)
	k.AddStateToCheckpoint(survivorsKey, &survivors{list: listed(k)})
}

func (s *survival) name(file *vfs.FileDescription, container string) {
	v := reflect.ValueOf(file.Impl())
	if v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != reflect.TypeFor[host.TTYFileDescription]().PkgPath() {
		return
	}
	inode := v.Elem().FieldByName("inode")
	if !inode.IsValid() {
		return
	}
	inode = inode.Elem()
	var st unix.Stat_t
	if unix.Fstat(int(inode.FieldByName("hostFD").Int()), &st) != nil {
		return
	}
	key := hostFileKey(&st)
	if !s.keep[key] {
		return
	}
	*pointer[bool](inode, "restorable") = true
	*pointer[checkpoint.ResourceID](inode, "restoreKey") = host.MakeResourceID(container, int(key))
}

// hostFileKey tells a pipe or a terminal of the host from all others.
func hostFileKey(st *unix.Stat_t) uint64 {
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return 1<<40 | uint64(unix.Minor(st.Rdev))
	}
	return 1<<41 | st.Ino
}

// pointer is where an unexported field of gVisor's is.
func pointer[T any](v reflect.Value, field string) *T {
	f := v.FieldByName(field)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("gVisor's %s has no field %s of type %s", v.Type(), field, reflect.TypeFor[T]()))
	}
	return (*T)(f.Addr().UnsafePointer())
}

func processes(k *kernel.Kernel) (list reflect.Value, mu sync.Locker) {
	loader := reflect.ValueOf(k.Saver().(*boot.Loader)).Elem()
	f := loader.FieldByName("processes")
	m := loader.FieldByName("mu")
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem(), reflect.NewAt(m.Type(), m.Addr().UnsafePointer()).Interface().(sync.Locker)
}

func listed(k *kernel.Kernel) (list []survivor) {
	all, mu := processes(k)
	mu.Lock()
	defer mu.Unlock()
	for it := all.MapRange(); it.Next(); {
		pid, p := it.Key().FieldByName("pid").Int(), it.Value().Elem()
		if pid == 0 {
			continue
		}
		list = append(list, survivor{
			pid: pid, group: *pointer[*kernel.ThreadGroup](p, "tg"), terminal: *pointer[*host.TTYFileDescription](p, "tty"),
		})
	}
	return list
}

func (s *survival) enlist(k *kernel.Kernel) {
	all, mu := processes(k)
	mu.Lock()
	defer mu.Unlock()
	for _, r := range s.revived {
		key := reflect.New(all.Type().Key()).Elem()
		*pointer[string](key, "cid") = k.GlobalInit().Leader().ContainerID()
		*pointer[kernel.ThreadID](key, "pid") = kernel.ThreadID(r.pid)
		entry := reflect.New(all.Type().Elem().Elem())
		*pointer[*kernel.ThreadGroup](entry.Elem(), "tg") = r.group
		*pointer[*host.TTYFileDescription](entry.Elem(), "tty") = r.terminal
		all.SetMapIndex(key, entry)
	}
	s.revived = nil
}

//go:linkname reparentLocked gvisor.dev/gvisor/pkg/sentry/kernel.(*Task).reparentLocked
func reparentLocked(t, parent *kernel.Task)

func (s *survival) revive(k *kernel.Kernel, list []survivor) {
	init := k.GlobalInit().Leader()
	children := pointer[map[*kernel.Task]struct{}](reflect.ValueOf(init).Elem(), "children")
	if *children == nil {
		*children = map[*kernel.Task]struct{}{}
	}
	for _, t := range k.TaskSet().Root.Tasks() {
		t.Origin = kernel.OriginUnknown
	}
	for _, tg := range k.RootPIDNamespace().ThreadGroups() {
		if leader := tg.Leader(); leader != init && leader.Parent() == nil {
			reparentLocked(leader, init)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revived = list
}

func init() {
	state.Register((*survivors)(nil))
	state.Register((*survivor)(nil))
}

func (*survivors) StateTypeName() string { return "agentdock.survivors" }
func (*survivors) StateFields() []string { return []string{"list", "refused"} }

func (s *survivors) StateSave(m state.Sink) {
	s.refused = theSurvival.refused.dump()
	m.Save(0, &s.list)
	m.Save(1, &s.refused)
}

func (s *survivors) StateLoad(ctx context.Context, m state.Source) {
	m.Load(0, &s.list)
	m.Load(1, &s.refused)
	m.AfterLoad(func() {
		theSurvival.refused.load(s.refused)
		theSurvival.revive(ctx.Value(kernel.CtxKernel).(*kernel.Kernel), s.list)
	})
}

func (*survivor) StateTypeName() string { return "agentdock.survivor" }
func (*survivor) StateFields() []string { return []string{"pid", "group", "terminal"} }
func (s *survivor) StateSave(m state.Sink) {
	m.Save(0, &s.pid)
	m.Save(1, &s.group)
	m.Save(2, &s.terminal)
}
func (s *survivor) StateLoad(_ context.Context, m state.Source) {
	m.Load(0, &s.pid)
	m.Load(1, &s.group)
	m.Load(2, &s.terminal)
}
