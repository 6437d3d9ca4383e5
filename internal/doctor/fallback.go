package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/localexecd"
)

// examineFallback says what the development fallback declares. It is not attacked:
// what it lacks is known, and it is refused wherever that matters.
func examineFallback(ctx context.Context, o Options, r *Report) error {
	ended := o.Phase("starting an execution service")
	service, err := localexecd.Start(ctx, localexecd.Config{})
	ended()
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.cannotRun("docker", err.Error(), "mend what keeps the service from starting, said above (docs/docker.md); then run agentdock doctor again")
		return nil
	}
	client, err := execrpc.DialUnix(ctx, service.Socket())
	if err != nil {
		return errors.Join(err, service.Stop())
	}
	defer client.Close()
	have := client.Capabilities()
	report := EnvironmentReport{Name: have.Name, Version: have.Version, Runs: true, Reason: "for development only"}
	if missing := have.Enforces.Missing(); len(missing) > 0 {
		report.Reason += "; limits that cannot be enforced here, and are refused: " + strings.Join(missing, ", ")
	}
	r.Environments = append(r.Environments, report)
	r.Guarantees = declared(have)
	return service.Stop()
}

// declared is a line for each check, from what a service declares.
func declared(have execenv.Capabilities) []Guarantee {
	lines := make([]Guarantee, 0, len(checks))
	for _, c := range checks {
		g := Guarantee{ID: c.id, Name: c.name, Status: Declared, Evidence: "by the service; not attacked here"}
		if why := lacking(have, c.name); why != "" {
			g.Status, g.Evidence, g.Do = NotEnforced, why, "run gVisor (SANDBOX_RUNTIME=gvisor) where that matters"
		}
		lines = append(lines, g)
	}
	return lines
}

// lacking says why an environment does not give what a check is about.
func lacking(have execenv.Capabilities, check string) string {
	if check == "kernel isolation" && have.Isolation != execenv.IsolationKernel {
		return fmt.Sprintf("programs are processes of the host's kernel (isolation is %q)", have.Isolation)
	}
	limit := map[string]string{
		"process quota": "pids", "disk quota": "disk", "inode quota": "inodes", "output quota": "output",
		"processor quota": "cpu", "memory quota": "memory", "wall clock": "wall clock",
	}[check]
	if limit != "" && slices.Contains(have.Enforces.Missing(), limit) {
		return fmt.Sprintf("there is nothing here to enforce a %s limit with", limit)
	}
	return ""
}
