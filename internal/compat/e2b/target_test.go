package e2b

import (
	"net/http/httptest"
	"testing"

	"github.com/agentdock/agentdock/internal/live"
)

func TestTargets(t *testing.T) {
	f := New(Config{}, &live.Sandboxes{})
	for _, c := range []struct {
		path, host, id, port string
		want                 target
		claimed              bool
	}{
		{path: "/health", id: "abc", want: target{"abc", daemonPort}, claimed: true},
		{path: "/execute", id: "abc", port: interpreterPort, want: target{"abc", interpreterPort}, claimed: true},
		{path: "/", host: "49983-abc.example.test:7300", want: target{"abc", daemonPort}, claimed: true},
		{path: "/", host: "3000-abc.example.test", want: target{"abc", "3000"}, claimed: true},
		{path: "/v1/jobs", host: "example.test"},
		{path: "/v1/jobs", host: "127.0.0.1:7300"},
		{path: "/v1/sandboxes"},
		{path: "/healthz"},
		{path: "/"},
		{path: "/v2"},
		{path: "/sandboxes", claimed: true},
		{path: "/sandboxes/abc", claimed: true},
		{path: "/v2/sandboxes", claimed: true},
		{path: "/v3/templates", claimed: true},
		{path: "/files", claimed: true},
	} {
		r := httptest.NewRequest("GET", "http://localhost"+c.path, nil)
		if c.host != "" {
			r.Host = c.host
		}
		if c.id != "" {
			r.Header.Set("E2b-Sandbox-Id", c.id)
		}
		if c.port != "" {
			r.Header.Set("E2b-Sandbox-Port", c.port)
		}
		got, _ := targetOf(r)
		if got != c.want || f.Claims(r) != c.claimed {
			t.Errorf("%+v: %+v, claimed %v", c, got, f.Claims(r))
		}
	}
}
