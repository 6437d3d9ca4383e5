package settings

// EgressPrefix is of every variable of the gateway.
const EgressPrefix = "AGENTDOCK_EGRESS_"

// Egress is what agentdock-egress reads.
type Egress struct {
	Socket      string   `env:"AGENTDOCK_EGRESS_SOCKET" help:"unix socket to serve execution services on"`
	AllowedUIDs []uint   `env:"AGENTDOCK_EGRESS_ALLOWED_UIDS" help:"users that may use the socket besides root and this gateway's own, separated by commas"`
	NetworkFile string   `env:"AGENTDOCK_NETWORK_FILE" help:"file with presets of servers and with mirrors that may be private; without that file the presets that are shipped hold"`
	DNS         []string `env:"AGENTDOCK_EGRESS_DNS" help:"name servers as ADDRESS:PORT, separated by commas; empty: the host's own"`
	User        uint     `env:"AGENTDOCK_EGRESS_USER" help:"user and group that it becomes when root starts it; not one that anything else has"`
}

// DefaultEgress is what it does when nothing is set.
func DefaultEgress() Egress {
	return Egress{
		Socket:      "/run/agentdock/egress.sock",
		NetworkFile: "/etc/agentdock/network.conf",
		// Just below the users of sandboxes.
		User: 1_879_048_191,
	}
}
