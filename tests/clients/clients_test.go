package clients

import (
	"strconv"
	"testing"
)

// TestClients runs each client. The README says how many checks each has, so that
// none is lost.
func TestClients(t *testing.T) {
	w := newWorld(t)
	w.node = installNode(t)
	for _, c := range []struct{ dir, client string }{
		{"e2b", "e2b"},
		{"code-interpreter", "@e2b/code-interpreter"},
		{"cli", "@e2b/cli"},
		{"computesdk", "@computesdk/e2b"},
		{"agents", "@openai/agents-extensions"},
	} {
		t.Run(c.dir, func(t *testing.T) {
			here := *w
			here.T = t
			passed := here.run(c.dir)
			if want := promised(t, c.client); !t.Failed() && strconv.Itoa(passed) != want {
				t.Errorf("%d checks, and the README says %s", passed, want)
			}
		})
	}
}
