package settings

import (
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// ExecdPrefix is of every variable of the execution service.
const ExecdPrefix = "AGENTDOCK_EXECD_"

// Execd is what agentdock-execd reads. It has a flag for each as well: --max-cpu
// is AGENTDOCK_EXECD_MAX_CPU.
type Execd struct {
	Socket         string   `env:"AGENTDOCK_EXECD_SOCKET" help:"unix socket to serve on; empty for none"`
	AllowedUIDs    []uint   `env:"AGENTDOCK_EXECD_ALLOWED_UIDS" help:"users that may use the socket besides root and this service's own, separated by commas"`
	Listen         string   `env:"AGENTDOCK_EXECD_LISTEN" help:"TCP address to serve on, with mutual TLS"`
	TLSCert        string   `env:"AGENTDOCK_EXECD_TLS_CERT" help:"PEM file with this service's certificate"`
	TLSKey         string   `env:"AGENTDOCK_EXECD_TLS_KEY" help:"PEM file with its key"`
	TLSClientCA    string   `env:"AGENTDOCK_EXECD_TLS_CLIENT_CA" help:"PEM file with the authority that signs clients"`
	AllowedClients []string `env:"AGENTDOCK_EXECD_ALLOWED_CLIENTS" help:"DNS or URI names of clients, separated by commas; none: all of the authority"`
	StateDir       string   `env:"AGENTDOCK_EXECD_STATE_DIR" help:"directory for what sandboxes need while they live"`
	ImageDir       string   `env:"AGENTDOCK_EXECD_IMAGE_DIR" help:"directory with root images; read only"`
	DiskDir        string   `env:"AGENTDOCK_EXECD_DISK_DIR" help:"directory for workspaces that are kept on disk, as those above half their memory limit are; not in memory and not mounted noexec; empty for the state directory"`
	Guest          string   `env:"AGENTDOCK_EXECD_GUEST" help:"the agentdock-guest program; empty for the one beside this program"`
	EgressSocket   string   `env:"AGENTDOCK_EXECD_EGRESS_SOCKET" help:"unix socket of agentdock-egress, through which sandboxes reach what they may reach; empty: none has a network"`
	// It takes no requests of people, and must be told the same as what does.
	Auth
	Runtime
	DockerSocket       string `env:"AGENTDOCK_EXECD_DOCKER_SOCKET" help:"with SANDBOX_RUNTIME=docker: unix socket of the rootless Docker daemon; empty for the one of the user who starts this"`
	DockerAllowRootful bool   `env:"AGENTDOCK_EXECD_DOCKER_ALLOW_ROOTFUL" help:"with SANDBOX_RUNTIME=docker: take a daemon that runs as root; only for tests, because whoever gets out of a container is root then"`
	CgroupParent       string `env:"AGENTDOCK_EXECD_CGROUP_PARENT" help:"control group below which sandboxes get theirs"`

	MaxCPU       float64       `env:"AGENTDOCK_EXECD_MAX_CPU" help:"most cores for one sandbox"`
	MaxMemory    Size          `env:"AGENTDOCK_EXECD_MAX_MEMORY" help:"most memory for one sandbox (512m, 4g)"`
	MaxPIDs      int64         `env:"AGENTDOCK_EXECD_MAX_PIDS" help:"most processes and threads in one sandbox"`
	MaxDisk      Size          `env:"AGENTDOCK_EXECD_MAX_DISK" help:"most disk for one workspace"`
	TotalDisk    Size          `env:"AGENTDOCK_EXECD_TOTAL_DISK" help:"most disk for all workspaces together that are kept on disk"`
	KeepFree     Size          `env:"AGENTDOCK_EXECD_KEEP_FREE" help:"what a new workspace must leave free of that disk"`
	MaxInodes    int64         `env:"AGENTDOCK_EXECD_MAX_INODES" help:"most files in one workspace"`
	MaxOutput    Size          `env:"AGENTDOCK_EXECD_MAX_OUTPUT" help:"most bytes kept of each output stream of a command"`
	MaxWallClock time.Duration `env:"AGENTDOCK_EXECD_MAX_WALL_CLOCK" help:"longest run of one command"`
	MaxLifetime  time.Duration `env:"AGENTDOCK_EXECD_MAX_LIFETIME" help:"longest life of one sandbox, whatever its caller asked for"`
	MaxSandboxes int           `env:"AGENTDOCK_EXECD_MAX_SANDBOXES" help:"most sandboxes at once"`
	MaxExecs     int           `env:"AGENTDOCK_EXECD_MAX_EXECS" help:"most commands at once in one sandbox"`
}

// DefaultExecd is what it does when nothing is set.
func DefaultExecd() Execd {
	most := run.Ceiling()
	return Execd{
		Socket:       "/run/agentdock/execd.sock",
		StateDir:     "/var/lib/agentdock/execd",
		ImageDir:     "/var/lib/agentdock/images",
		CgroupParent: "agentdock",
		Auth:         Auth{Mode: AuthAPIKey},
		Runtime:      Runtime{RuntimeGVisor},
		MaxCPU:       float64(most.MilliCPU) / 1000,
		MaxMemory:    Size(most.MemoryBytes),
		MaxPIDs:      most.PIDs,
		MaxDisk:      Size(most.DiskBytes),
		TotalDisk:    Size(1024 * run.GiB),
		KeepFree:     Size(run.GiB),
		MaxInodes:    most.Inodes,
		MaxOutput:    Size(most.OutputBytes),
		MaxWallClock: most.WallClock,
		MaxLifetime:  24 * time.Hour,
		MaxSandboxes: 256,
		MaxExecs:     64,
	}
}
