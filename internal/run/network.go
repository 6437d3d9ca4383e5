package run

import "slices"

// NetworkMode says whether a sandbox has a way out at all.
type NetworkMode string

const (
	// NetworkNone: nothing gets out. It is what an empty mode means.
	NetworkNone NetworkMode = "none"
	// NetworkAllow: connections to the names of Network.Allow, through a gateway.
	NetworkAllow NetworkMode = "allow"
)

// Network is what a sandbox may reach outside. The zero value is nothing.
type Network struct {
	Mode NetworkMode `json:"mode,omitempty"`
	// Allow are servers as "name", "name:port" or "*.name:port"; package policy
	// has the rules. Without a port it is 443.
	Allow []string `json:"allow,omitempty"`
	// MaxBytes bounds what goes either way in all connections together,
	// MaxConnections how many are open at once, and BytesPerSecond how fast bytes
	// go either way. Zero leaves that to the gateway, which has bounds of its own.
	MaxBytes       int64 `json:"max_bytes,omitempty"`
	MaxConnections int64 `json:"max_connections,omitempty"`
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
}

// Open reports whether anything is allowed.
func (n Network) Open() bool { return n.Mode == NetworkAllow }

// Equal reports whether two say the same in the same words.
func (n Network) Equal(o Network) bool {
	return n.Mode == o.Mode && slices.Equal(n.Allow, o.Allow) &&
		n.MaxBytes == o.MaxBytes && n.MaxConnections == o.MaxConnections && n.BytesPerSecond == o.BytesPerSecond
}
