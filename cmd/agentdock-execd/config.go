package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/settings"
)

// config is every setting and what else the flags say. A flag wins over its
// variable.
type config struct {
	settings.Execd

	// Flags only: they are about the process that starts this one.
	ReadyFD    int
	ExitWithFD int
	sweep      bool
	version    bool
}

func defaults() config {
	return config{Execd: settings.DefaultExecd(), ReadyFD: -1, ExitWithFD: -1}
}

// parse reads the variables and then the flags. For --help it prints the usage
// and returns pflag.ErrHelp.
func parse(args, environ []string, stdout io.Writer) (config, error) {
	c := defaults()
	if err := settings.OnlyKnown(environ, settings.ExecdPrefix); err != nil {
		return c, fmt.Errorf("cannot start: %w", err)
	}
	if err := settings.Load(&c.Execd, environ); err != nil {
		return c, err
	}
	flags := pflag.NewFlagSet("agentdock-execd", pflag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.SortFlags = false
	flags.Usage = func() {
		fmt.Fprintf(stdout, "agentdock-execd runs hostile code in sandboxes for AgentDock.\n\n"+
			"Every flag but the last four is also a variable: --max-cpu is %sMAX_CPU. SANDBOX_RUNTIME and AUTH_MODE are variables only.\n\n%s", execd.Prefix, flags.FlagUsages())
	}
	flags.StringVar(&c.Socket, "socket", c.Socket, "unix socket to serve on; empty for none")
	flags.StringVar(&c.Listen, "listen", c.Listen, "TCP address to serve on, with mutual TLS")
	flags.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "PEM file with this service's certificate")
	flags.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "PEM file with its key")
	flags.StringVar(&c.TLSClientCA, "tls-client-ca", c.TLSClientCA, "PEM file with the authority that signs clients")
	flags.StringSliceVar(&c.AllowedClients, "allowed-clients", c.AllowedClients, "DNS or URI names of clients; none: all of the authority")
	flags.UintSliceVar(&c.AllowedUIDs, "allowed-uids", c.AllowedUIDs, "users that may use the socket besides root and this service's own")
	flags.StringVar(&c.StateDir, "state-dir", c.StateDir, "directory for what sandboxes need while they live")
	flags.StringVar(&c.ImageDir, "image-dir", c.ImageDir, "directory with root images")
	flags.StringVar(&c.DiskDir, "disk-dir", c.DiskDir, "directory for workspaces that are kept on disk; empty for the state directory")
	flags.StringVar(&c.Guest, "guest", c.Guest, "the agentdock-guest program; empty for the one beside this program")
	flags.StringVar(&c.EgressSocket, "egress-socket", c.EgressSocket, "unix socket of agentdock-egress; empty: no sandbox has a network")
	flags.StringVar(&c.DockerSocket, "docker-socket", c.DockerSocket, "with SANDBOX_RUNTIME=docker: unix socket of the rootless daemon; empty for this user's own")
	flags.BoolVar(&c.DockerAllowRootful, "docker-allow-rootful", c.DockerAllowRootful, "with SANDBOX_RUNTIME=docker: take a daemon that runs as root; only for tests")
	flags.StringVar(&c.CgroupParent, "cgroup-parent", c.CgroupParent, "control group below which sandboxes get theirs")
	flags.Float64Var(&c.MaxCPU, "max-cpu", c.MaxCPU, "most cores for one sandbox")
	flags.Var(&c.MaxMemory, "max-memory", "most memory for one sandbox (512m, 4g)")
	flags.Int64Var(&c.MaxPIDs, "max-pids", c.MaxPIDs, "most processes and threads in one sandbox")
	flags.Var(&c.MaxDisk, "max-disk", "most disk for one workspace")
	flags.Var(&c.TotalDisk, "total-disk", "most disk for all workspaces that are kept on disk")
	flags.Var(&c.KeepFree, "keep-free", "what a new workspace on disk must leave free of that disk")
	flags.Int64Var(&c.MaxInodes, "max-inodes", c.MaxInodes, "most files in one workspace")
	flags.Var(&c.MaxOutput, "max-output", "most bytes kept of each output stream of a command")
	flags.DurationVar(&c.MaxWallClock, "max-wall-clock", c.MaxWallClock, "longest run of one command")
	flags.DurationVar(&c.MaxLifetime, "max-lifetime", c.MaxLifetime, "longest life of one sandbox, whatever its caller asked for")
	flags.IntVar(&c.MaxSandboxes, "max-sandboxes", c.MaxSandboxes, "most sandboxes at once")
	flags.IntVar(&c.MaxExecs, "max-execs", c.MaxExecs, "most commands at once in one sandbox")
	flags.IntVar(&c.ReadyFD, "ready-fd", c.ReadyFD, "descriptor that gets the line \"ready\" when calls are taken")
	flags.IntVar(&c.ExitWithFD, "exit-with-fd", c.ExitWithFD, "descriptor of a pipe; stop when its other end is closed")
	flags.BoolVar(&c.sweep, "sweep", false, "remove what a service with this state directory left when it was killed, and exit")
	flags.BoolVar(&c.version, "version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("cannot start: unknown argument %q; see --help", flags.Arg(0))
	}
	return c, c.check()
}

func (c config) check() error {
	if err := c.Runtime.Check(c.Mode); err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if strings.Contains(strings.TrimPrefix(c.DockerSocket, "unix://"), "://") {
		return fmt.Errorf("cannot start: the Docker daemon's socket is %q, and only one on a unix socket of this host is spoken to; give that socket's path", c.DockerSocket)
	}
	for name, v := range map[string]float64{
		"cpu": c.MaxCPU, "memory": float64(c.MaxMemory), "pids": float64(c.MaxPIDs), "disk": float64(c.MaxDisk),
		"inodes": float64(c.MaxInodes), "output": float64(c.MaxOutput), "wall-clock": float64(c.MaxWallClock),
		"lifetime": float64(c.MaxLifetime), "sandboxes": float64(c.MaxSandboxes), "execs": float64(c.MaxExecs),
	} {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("cannot start: --max-%s must be above 0", name)
		}
	}
	if c.TotalDisk <= 0 || c.KeepFree < 0 {
		return errors.New("cannot start: --total-disk must be above 0, and --keep-free not below")
	}
	for _, uid := range c.AllowedUIDs {
		if uid > math.MaxUint32-1 {
			return fmt.Errorf("cannot start: %d is no user ID", uid)
		}
	}
	for _, fd := range []int{c.ReadyFD, c.ExitWithFD} {
		if fd >= 0 && fd < 3 {
			return fmt.Errorf("cannot start: descriptor %d is standard input, output or error; give 3 or above", fd)
		}
	}
	return nil
}

// service is the part of the settings that the service itself needs.
func (c config) service(log *slog.Logger) (execd.Config, error) {
	uids := make([]uint32, len(c.AllowedUIDs))
	for i, uid := range c.AllowedUIDs {
		uids[i] = uint32(uid)
	}
	out := execd.Config{
		Socket: c.Socket, AllowedUIDs: uids,
		Listen: c.Listen, TLS: execrpc.TLSFiles{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSClientCA}, AllowedClients: c.AllowedClients,
		Policy: execd.Policy{
			Defaults: run.DefaultLimits(),
			Ceiling: run.Limits{
				MilliCPU: int64(math.Round(c.MaxCPU * 1000)), MemoryBytes: int64(c.MaxMemory), PIDs: c.MaxPIDs,
				DiskBytes: int64(c.MaxDisk), Inodes: c.MaxInodes, OutputBytes: int64(c.MaxOutput), WallClock: c.MaxWallClock,
			},
			MaxLifetime: c.MaxLifetime, MaxSandboxes: c.MaxSandboxes, MaxExecs: c.MaxExecs,
		},
		Log: log,
	}
	if c.ReadyFD >= 0 {
		f, err := inherited(c.ReadyFD, "ready")
		if err != nil {
			return out, err
		}
		out.Ready = f
	}
	if c.ExitWithFD >= 0 {
		f, err := inherited(c.ExitWithFD, "exit-with")
		if err != nil {
			return out, err
		}
		out.ExitWith = f
	}
	return out, out.Validate()
}

// inherited takes over a descriptor: no sandbox inherits it in turn, and a read
// from it ends when it is closed.
func inherited(fd int, name string) (*os.File, error) {
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("cannot start: descriptor %d is not open: %w", fd, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
