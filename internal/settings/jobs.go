package settings

import (
	"errors"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// SandboxPrefix is of the variables about sandboxes (REQUIREMENTS B4). A name
// with it that is no setting is refused.
const SandboxPrefix = "SANDBOX_"

// Sandbox is what a job gets that does not ask for anything else.
type Sandbox struct {
	Image           string  `env:"SANDBOX_IMAGE" help:"root image, by name or digest"`
	CPULimit        CPUs    `env:"SANDBOX_CPU_LIMIT" help:"processors"`
	MemoryLimit     Size    `env:"SANDBOX_MEMORY_LIMIT" help:"memory"`
	PIDsLimit       int64   `env:"SANDBOX_PIDS_LIMIT" help:"processes and threads at once"`
	DiskLimit       Size    `env:"SANDBOX_DISK_LIMIT" help:"bytes in the workspace"`
	InodesLimit     int64   `env:"SANDBOX_INODES_LIMIT" help:"files in the workspace"`
	TimeoutSeconds  Seconds `env:"SANDBOX_TIMEOUT_SECONDS" help:"wall clock of one command"`
	MaxOutputBytes  Bytes   `env:"SANDBOX_MAX_OUTPUT_BYTES" help:"bytes kept of each output stream of a command; the rest is counted, and truncated says so"`
	NetworkDisabled bool    `env:"SANDBOX_NETWORK_DISABLED" help:"sandboxes have no network; false is refused, because no environment can confine one yet"`
}

func defaultSandbox() Sandbox {
	l := run.DefaultLimits()
	return Sandbox{
		Image: "default", CPULimit: CPUs(l.MilliCPU), MemoryLimit: Size(l.MemoryBytes), PIDsLimit: l.PIDs,
		DiskLimit: Size(l.DiskBytes), InodesLimit: l.Inodes, TimeoutSeconds: Seconds(l.WallClock),
		MaxOutputBytes: Bytes(l.OutputBytes), NetworkDisabled: true,
	}
}

// Limits are those of a job that asks for none.
func (s Sandbox) Limits() run.Limits {
	return run.Limits{
		MilliCPU: int64(s.CPULimit), MemoryBytes: int64(s.MemoryLimit), PIDs: s.PIDsLimit,
		DiskBytes: int64(s.DiskLimit), Inodes: s.InodesLimit, OutputBytes: int64(s.MaxOutputBytes),
		WallClock: time.Duration(s.TimeoutSeconds),
	}
}

func (s Sandbox) check() error {
	var wrong []error
	if !s.NetworkDisabled {
		wrong = append(wrong, errors.New("SANDBOX_NETWORK_DISABLED is false: no environment can confine a network yet; unset it"))
	}
	if s.Image == "" {
		wrong = append(wrong, errors.New("SANDBOX_IMAGE is empty; name an image, or unset it"))
	}
	if err := s.Limits().Validate(); err != nil {
		wrong = append(wrong, fmt.Errorf("the SANDBOX_ limits leave no room for a sandbox: %w; raise it", err))
	}
	return errors.Join(wrong...)
}

// Work is how jobs are run, wherever the worker is.
type Work struct {
	Concurrency     int           `env:"AGENTDOCK_WORKER_CONCURRENCY" help:"jobs that one worker runs at once"`
	Lease           time.Duration `env:"AGENTDOCK_WORKER_LEASE" help:"how long a worker holds a job without saying that it lives; then another goes on with it"`
	Drain           time.Duration `env:"AGENTDOCK_WORKER_DRAIN" help:"how long a worker that was told to stop finishes what it runs; then it lets go, and another goes on"`
	Retention       time.Duration `env:"AGENTDOCK_JOB_RETENTION" help:"how long a job that has ended is kept, with its log and artifacts"`
	UploadRetention time.Duration `env:"AGENTDOCK_UPLOAD_RETENTION" help:"how long an uploaded archive is kept that no job needs which has not ended"`
	Checkout
}

func defaultWork() Work {
	return Work{
		Concurrency: 4, Lease: 30 * time.Second, Drain: 30 * time.Second, Retention: 30 * 24 * time.Hour,
		UploadRetention: 24 * time.Hour, Checkout: DefaultCheckout(),
	}
}

func (w Work) check() error {
	var wrong []error
	if w.Concurrency < 1 || w.Concurrency > 1024 {
		wrong = append(wrong, fmt.Errorf("AGENTDOCK_WORKER_CONCURRENCY is %d; give 1 to 1024", w.Concurrency))
	}
	if w.Lease < 3*time.Second || w.Lease > time.Hour {
		wrong = append(wrong, fmt.Errorf("AGENTDOCK_WORKER_LEASE is %s; give 3s to 1h", w.Lease))
	}
	if w.Drain < 0 {
		wrong = append(wrong, fmt.Errorf("AGENTDOCK_WORKER_DRAIN is %s; give 0s or more", w.Drain))
	}
	if w.Retention < time.Minute {
		wrong = append(wrong, fmt.Errorf("AGENTDOCK_JOB_RETENTION is %s; give 1m or more", w.Retention))
	}
	if w.UploadRetention < time.Minute {
		wrong = append(wrong, fmt.Errorf("AGENTDOCK_UPLOAD_RETENTION is %s; give 1m or more", w.UploadRetention))
	}
	return errors.Join(append(wrong, w.Checkout.check())...)
}
