package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/guest"
	"github.com/agentdock/agentdock/internal/guest/filewire"
)

const (
	// guestDir is where the helper is mounted in the sandbox.
	guestDir  = filewire.Dir
	guestPath = filewire.Program

	cpuPeriodMicros = 100_000
)

// containerSpec describes the sandbox to gVisor. Its first process is our init,
// which is root of the sandbox with what it needs for the set-up, and gives
// that up before the sandbox is handed out.
func containerSpec(spec execenv.Spec, hostID uint32, fileType, rootImage, guestImage, emptyRoot string) (*specs.Spec, error) {
	setup, err := json.Marshal(guest.Setup{
		Group:  spec.ID,
		PIDs:   spec.Limits.PIDs,
		Mounts: writable(spec.Limits, fileType),
	})
	if err != nil {
		return nil, err
	}
	setupCaps := []string{"CAP_SYS_ADMIN", "CAP_SETPCAP"}
	quota := spec.Limits.MilliCPU * cpuPeriodMicros / 1000
	period := uint64(cpuPeriodMicros)
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: "sandbox",
		Process: &specs.Process{
			Args: []string{guestPath, "init", string(setup)},
			Env:  []string{"PATH=" + execenv.Path},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: setupCaps, Effective: setupCaps, Permitted: setupCaps,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 65536},
				{Type: "RLIMIT_CORE"},
			},
			NoNewPrivileges: true,
		},
		Root: &specs.Root{Path: emptyRoot, Readonly: true},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": rootImage,
			"dev.gvisor.spec.rootfs.type":   "erofs",
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/sys", Type: "sysfs", Options: []string{"nosuid", "nodev", "noexec", "ro"}},
			{Destination: "/sys/fs/cgroup", Type: "cgroup", Options: []string{"nosuid", "nodev", "noexec"}},
			{Destination: "/dev/pts", Type: "devpts", Options: []string{"nosuid", "noexec"}},
			{Destination: guestDir, Type: "erofs", Source: guestImage, Options: []string{"ro"}},
		},
		Linux: &specs.Linux{
			Resources: &specs.LinuxResources{
				CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
				Memory: &specs.LinuxMemory{Limit: &spec.Limits.MemoryBytes},
			},
			// One ID is enough: the users inside are the sandbox's kernel's own.
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: hostID, Size: 1}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: hostID, Size: 1}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace},
			},
		},
	}, nil
}

// writeBundle puts the specification where gVisor reads it.
func writeBundle(dir string, spec *specs.Spec) error {
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("cannot write the sandbox's specification: %w", err)
	}
	return nil
}
