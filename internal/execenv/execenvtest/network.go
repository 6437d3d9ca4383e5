package execenvtest

import (
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var networkCases = []testCase{
	{clause: "G6", name: "networks_that_cannot_be", run: badNetworks},
	{clause: "G6", name: "no_way_out_unless_it_is_given", run: noWayOut},
	{clause: "G6", name: "allowed_names_and_nothing_else", needs: needsWayOut, run: allowedNames},
	{clause: "G6", name: "a_change_holds_at_once", needs: needsWayOut, run: networkChanged},
}

// A name that nobody has.
const nobody = "nobody.example:443"

func allow(names ...string) func(*execenv.Spec) {
	return func(s *execenv.Spec) { s.Network = run.Network{Mode: run.NetworkAllow, Allow: names} }
}

func badNetworks(c *C) {
	for _, n := range []run.Network{
		{Mode: "all"}, {Mode: run.NetworkAllow}, {Allow: []string{nobody}},
		{Mode: run.NetworkAllow, Allow: []string{"*"}}, {Mode: run.NetworkAllow, Allow: []string{nobody}, MaxBytes: -1},
	} {
		spec := c.spec()
		spec.Network = n
		_, err := c.env.Create(c.ctx(), spec)
		c.code("Create with a network that cannot be", err, fault.Invalid)
	}
	c.code("SetNetwork to one that cannot be", c.create().SetNetwork(c.ctx(), run.Network{Mode: "all"}), fault.Invalid)
}

func noWayOut(c *C) {
	if !c.caps.NetworkAllow {
		_, err := c.env.Create(c.ctx(), c.spec(allow(nobody)))
		c.code("Create with a network", err, fault.Unsupported)
	}
	b := c.create()
	if r := b.run("dial", "tcp", "127.0.0.1:3128"); r.Outcome.Success() {
		c.Errorf("a proxy listens in a sandbox without a network")
	}
	c.code("SetNetwork on a sandbox without one", b.SetNetwork(c.ctx(), c.spec(allow(nobody)).Network), fault.Unsupported)
	c.ok("SetNetwork to nothing", b.SetNetwork(c.ctx(), run.Network{}))
	use, err := b.NetworkUse(c.ctx())
	c.ok("NetworkUse", err)
	if len(use.Connections) != 0 {
		c.Errorf("without a network there were connections: %v", use.Connections)
	}
}

func allowedNames(c *C) {
	b := c.create(allow(nobody))
	if env := b.output("env"); !strings.Contains(env, `"HTTPS_PROXY=http://127.0.0.1:3128"`) {
		c.Errorf("programs do not find the proxy: %s", env)
	}
	noWayButTheProxy(c, b)
	for range 2 {
		if got := b.output("proxy", "127.0.0.1:3128", "other.example:443"); !strings.Contains(got, " 403 ") || !strings.Contains(got, "not allowed") {
			c.Errorf("for a name that is not allowed the proxy says %q", got)
		}
	}
	// It is allowed, and nobody has it.
	if got := b.output("proxy", "127.0.0.1:3128", nobody); !strings.Contains(got, " 502 ") {
		c.Errorf("for a name that nobody has the proxy says %q", got)
	}
	use, err := b.NetworkUse(c.ctx())
	c.ok("NetworkUse", err)
	if len(use.Connections) != 3 || use.Connections[2].Decision != run.EgressFailed || use.Connections[2].Rule != nobody {
		c.Errorf("the transcript is %+v", use.Connections)
	}
	if len(use.Denied) != 1 || use.Denied[0].Name != "other.example" || use.Denied[0].Count != 2 {
		c.Errorf("what was refused is %+v", use.Denied)
	}
	// A sandbox beside it has no part in that.
	if r := c.create().run("dial", "tcp", "127.0.0.1:3128"); r.Outcome.Success() {
		c.Errorf("another sandbox has the proxy too")
	}
}

// noWayButTheProxy is G1 for a sandbox with a network.
func noWayButTheProxy(c *C, b *box) {
	for line := range strings.Lines(b.output("net", "tcp:8.8.8.8:53", "udp:8.8.8.8:53", "tcp:169.254.169.254:80", "lookup:example.com")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "interface ") && line != "interface lo" || strings.HasSuffix(line, " ok") {
			c.Errorf("there is a way besides the proxy: %s", line)
		}
	}
}

func networkChanged(c *C) {
	b := c.create(allow("other.example:443"))
	says := func(want string) {
		if got := b.output("proxy", "127.0.0.1:3128", nobody); !strings.Contains(got, want) {
			c.Errorf("the proxy says %q, want %q", got, want)
		}
	}
	says(" 403 ")
	c.ok("SetNetwork", b.SetNetwork(c.ctx(), run.Network{Mode: run.NetworkAllow, Allow: []string{nobody}}))
	says(" 502 ")
	c.ok("SetNetwork", b.SetNetwork(c.ctx(), run.Network{Mode: run.NetworkNone}))
	says(" 403 ")
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	c.code("SetNetwork on a destroyed sandbox", b.SetNetwork(c.ctx(), run.Network{}), fault.Gone, fault.NotFound)
}
