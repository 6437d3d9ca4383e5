package execrpc

import (
	"log/slog"
	"net"

	"github.com/agentdock/agentdock/internal/peersocket"
)

// ListenUnix listens on a unix socket and lets in only processes that run as
// root, as this process's user, or as one of uids (package peersocket).
func ListenUnix(path string, uids []uint32, log *slog.Logger) (net.Listener, error) {
	return peersocket.Listen(path, uids, "AGENTDOCK_EXECD_ALLOWED_UIDS", log)
}
