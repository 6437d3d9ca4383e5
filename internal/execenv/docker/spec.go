package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	units "github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/guest/supervisor"
	"github.com/agentdock/agentdock/internal/run"
)

// Labels of containers.
const (
	labelSandbox   = "agentdock.sandbox"
	labelExecution = "agentdock.execution_id"
	labelID        = "agentdock.sandbox_id"
	labelInstance  = "agentdock.instance"
)

// Paths in a sandbox.
const (
	guestPath   = "/.agentdock/agentdock-guest"
	controlPath = "/.agentdock/control"
	socketName  = "socket"
)

// sharedProcesses bounds the processes of all sandboxes of a daemon together
// where it cannot bound those of one: they are one user to the kernel.
const sharedProcesses = 4096

// shareOfProcesses is how many of them one sandbox may have before it gets no
// more. A fork storm goes over it by what it makes between two looks.
const shareOfProcesses = 512

// place is a writable one.
type place struct {
	path          string
	bytes, inodes int64
	mode          string
}

// places are the three of G2; the workspace is first.
func places(l run.Limits) []place {
	shm := min(64*run.MiB, l.DiskBytes)
	return []place{
		{execenv.Workspace, l.DiskBytes, l.Inodes, "0755"},
		{"/tmp", l.DiskBytes, l.Inodes, "1777"},
		{"/dev/shm", shm, min(4096, l.Inodes), "1777"},
	}
}

func (p place) options() string {
	return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s,uid=%d,gid=%d", p.bytes, p.inodes, p.mode, execenv.UID, execenv.GID)
}

// create is what the daemon is asked for. Everything that an image could ask
// for by itself is set here, so that it has no say.
func (b *box) create() client.ContainerCreateOptions {
	labels := maps.Clone(b.Spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if labels[labelExecution] == "" {
		labels[labelExecution] = b.Spec.ID
	}
	labels[labelSandbox], labels[labelID], labels[labelInstance] = "true", b.Spec.ID, b.env.instance
	return client.ContainerCreateOptions{
		Name: b.name(),
		Config: &container.Config{
			Image:      b.image,
			Hostname:   "sandbox",
			User:       fmt.Sprintf("%d:%d", execenv.UID, execenv.GID),
			Entrypoint: []string{guestPath, "supervise", b.supervised()},
			// Not null: that would take the image's.
			Cmd:             []string{},
			WorkingDir:      "/",
			Labels:          labels,
			NetworkDisabled: true,
			Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: b.hostConfig(),
	}
}

func (b *box) supervised() string {
	cfg := supervisor.Config{Socket: controlPath + "/" + socketName, Program: guestPath}
	for _, p := range places(b.Spec.Limits) {
		cfg.Places = append(cfg.Places, p.path)
	}
	if !b.env.daemon.pids {
		cfg.Processes, cfg.Share = sharedProcesses, shareOfProcesses
	}
	data, _ := json.Marshal(cfg) // strings and numbers
	return string(data)
}

func (b *box) hostConfig() *container.HostConfig {
	no := false
	h := &container.HostConfig{
		// Never "host": where RootlessKit has no network of its own, that is the
		// host's.
		NetworkMode:    "none",
		IpcMode:        "none",
		MaskedPaths:    maskedPaths,
		ReadonlyPaths:  readOnlyPaths,
		CgroupnsMode:   "private",
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges:true", "seccomp=" + allowList()},
		ReadonlyRootfs: true,
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:      container.LogConfig{Type: "none"},
		Init:           &no, // the supervisor is one
		Tmpfs: map[string]string{
			// The daemon would mount a message queue there that all can write to.
			"/dev/mqueue": "ro,noexec,nosuid,nodev,size=4096,nr_inodes=1,mode=0555",
		},
		// What is in a sandbox ends before the daemon does, where they share a limit
		// of memory; and with its first process the memory of its files is free.
		OomScoreAdj: mostLikely,
		Mounts: []mount.Mount{
			b.bind(b.env.guest(), guestPath),
			b.bind(b.controlDir(), controlPath),
		},
		Resources: b.resources(),
	}
	for _, p := range places(b.Spec.Limits) {
		h.Tmpfs[p.path] = p.options()
	}
	return h
}

// mostLikely makes the kernel end a process before others for want of memory.
const mostLikely = 1000

// maskedPaths are those that Docker hides today, as the list of an old daemon is
// shorter, and the control groups: their names and counters are the host's.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware", "/sys/fs/cgroup",
}

// readOnlyPaths are Docker's own.
var readOnlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

func (b *box) bind(from, to string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: from, Target: to, ReadOnly: true,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}

// resources are the limits that hold, and what bounds a little where they do not.
func (b *box) resources() container.Resources {
	l, d := b.Spec.Limits, b.env.daemon
	// A rootless daemon can only lower what it has itself.
	r := container.Resources{Ulimits: []*units.Ulimit{{Name: "core", Soft: 0, Hard: 0}}}
	if d.memory {
		r.Memory, r.MemorySwap = l.MemoryBytes, l.MemoryBytes
	} else if d.memTotal > 0 {
		half := d.memTotal / 2 // of one process
		r.Ulimits = append(r.Ulimits, &units.Ulimit{Name: "data", Soft: half, Hard: half})
	}
	if d.cpu {
		r.NanoCPUs = l.MilliCPU * 1_000_000
	}
	if d.pids {
		pids := l.PIDs + ownProcesses
		r.PidsLimit = &pids
	}
	return r
}

// ownProcesses are the threads that the supervisor and one shepherd have at the
// least, on top of what programs may have. They have some more as they work, and
// each further command brings a shepherd: programs may get a few processes less
// than their limit, and never more.
const ownProcesses = 8

func (b *box) name() string { return "agentdock-" + b.env.instance + "-" + b.Spec.ID }

// imageRef is the name that the daemon has for an image. The default one is built
// from infrastructure/sandbox, or imported (REQUIREMENTS B12).
func imageRef(name string) string {
	if name == "default" {
		return "agentdock-sandbox:local"
	}
	return name
}

// allowList is Docker's own of system calls, as it is today: the one that comes with
// an old daemon lets more through (io_uring, and sockets to whatever machine this
// one is a guest of, which no network namespace holds back). What makes extended
// attributes is taken out of it: tmpfs counts them in no limit of bytes.
var allowList = sync.OnceValue(func() string {
	profile := seccomp.DefaultProfile()
	for _, rule := range profile.Syscalls {
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(makeAttributes, name) })
	}
	unsupported := uint(unix.EOPNOTSUPP)
	refused := &seccomp.Syscall{}
	refused.Names, refused.Action, refused.ErrnoRet = makeAttributes, specs.ActErrno, &unsupported
	profile.Syscalls = append(profile.Syscalls, refused)
	data, _ := json.Marshal(profile) // strings and numbers
	return string(data)
})

var makeAttributes = []string{"setxattr", "lsetxattr", "fsetxattr", "setxattrat"}
