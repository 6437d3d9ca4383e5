package clients

import "testing"

// TestClients runs each client. The number of its checks is here too, so that
// none is lost.
func TestClients(t *testing.T) {
	w := newWorld(t)
	w.node = installNode(t)
	for _, c := range []struct {
		name   string
		checks int
	}{
		{"e2b", 60},
		{"code-interpreter", 26},
		{"cli", 13},
		{"computesdk", 11},
		{"agents", 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			here := *w
			here.T = t
			if passed := here.run(c.name); passed < c.checks && !t.Failed() {
				t.Errorf("%d checks, fewer than %d", passed, c.checks)
			}
		})
	}
}
