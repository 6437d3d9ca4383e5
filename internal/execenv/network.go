package execenv

import (
	"context"
	"os"
	"strconv"

	"github.com/agentdock/agentdock/internal/run"
)

// Gateway is where connections of sandboxes go (package egress).
type Gateway interface {
	// Attach opens a stream for a sandbox's connections, which it may use as far
	// as n says.
	Attach(ctx context.Context, sandbox string, n run.Network) (*os.File, error)
	// Set changes that, for open connections too.
	Set(ctx context.Context, sandbox string, n run.Network) error
	// Use says what the sandbox did.
	Use(ctx context.Context, sandbox string) (run.NetworkUse, error)
	// Forget ends all of the sandbox; one that is not known is no error.
	Forget(ctx context.Context, sandbox string) error
}

// ProxyPort is where the proxy of a sandbox with a network listens, on loopback.
const ProxyPort = 3128

// ProxyEnv is what programs need to find the proxy. Most read the variables in one
// case or the other. ALL_PROXY is no SOCKS address, although the proxy speaks that:
// several clients refuse to start where they see one and lack the package for it.
func ProxyEnv() map[string]string {
	port := strconv.Itoa(ProxyPort)
	url := "http://127.0.0.1:" + port
	const local = "localhost,127.0.0.1,::1"
	java := "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=" + port + " -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=" + port +
		" -Dhttp.nonProxyHosts=localhost|127.*|[::1]"
	return map[string]string{
		"HTTP_PROXY": url, "http_proxy": url,
		"HTTPS_PROXY": url, "https_proxy": url,
		"ALL_PROXY": url, "all_proxy": url,
		"NO_PROXY": local, "no_proxy": local,
		// Node's fetch looks at them only if it is told to.
		"NODE_USE_ENV_PROXY": "1",
		"JAVA_TOOL_OPTIONS":  java,
	}
}
