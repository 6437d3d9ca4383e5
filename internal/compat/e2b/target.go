package e2b

import (
	"context"
	"net"
	"net/http"
	"regexp"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
)

// Ports by which clients address what runs in a sandbox.
const (
	daemonPort      = "49983"
	interpreterPort = "49999"
)

// target is what a request of the data plane is for.
type target struct{ sandbox, port string }

var sandboxHost = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]{1,63})\.`)

// targetOf reads the sandbox from the headers, or from the host name, which is
// PORT-ID.DOMAIN.
func targetOf(r *http.Request) (target, bool) {
	if id := r.Header.Get("E2b-Sandbox-Id"); id != "" {
		port := r.Header.Get("E2b-Sandbox-Port")
		if port == "" {
			port = daemonPort
		}
		return target{id, port}, true
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if m := sandboxHost.FindStringSubmatch(host); m != nil {
		return target{sandbox: m[2], port: m[1]}, true
	}
	return target{}, false
}

// exchange is what is known about a request so far.
type exchange struct {
	gate   *httpapi.Gate
	target target
	caller control.Caller
	// handle is the sandbox, on the data plane.
	handle *live.Handle
}

type exchangeKey struct{}

func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("e2b: a request came past Serve")
	}
	return x
}
