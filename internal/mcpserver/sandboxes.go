package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

const (
	// defaultTTL is longer than the platform's: models think between calls.
	defaultTTL = 30 * time.Minute
	// outputBytes is what the platform keeps of each stream of a command: more
	// than any result shows, for what the interpreter says in its own words.
	outputBytes = 1 << 20
	mostListed  = 100
)

type createInput struct {
	Image       string            `json:"image,omitempty" jsonschema:"name of the root image; the server's default, with Python, Node.js, git and make, if left out"`
	TTLSeconds  int64             `json:"ttl_seconds,omitempty" jsonschema:"seconds after which the sandbox ends by itself; 1800 if left out"`
	MemoryBytes int64             `json:"memory_bytes,omitempty" jsonschema:"limit of memory, files in memory included"`
	DiskBytes   int64             `json:"disk_bytes,omitempty" jsonschema:"how much the workspace may hold"`
	MilliCPU    int64             `json:"milli_cpu,omitempty" jsonschema:"limit of processor time; 1000 is one processor"`
	Env         map[string]string `json:"env,omitempty" jsonschema:"variables for every command; no secrets"`
	Labels      map[string]string `json:"labels,omitempty" jsonschema:"names and values by which people find the sandbox"`
	Keep        bool              `json:"keep,omitempty" jsonschema:"let it live until its time is over, also when this session ends"`
}

// sandbox is one as results show it. Its id, state and times are the platform's
// own words, and so safe.
type sandbox struct {
	SandboxID   string            `json:"sandbox_id" jsonschema:"names the sandbox in the other tools"`
	State       string            `json:"state" jsonschema:"creating, running, paused, ending or ended"`
	Outcome     string            `json:"outcome,omitempty" jsonschema:"how it ended, such as cancelled (it was killed), wall_clock (its time was over) or out_of_memory"`
	Image       string            `json:"image" jsonschema:"its root image"`
	Labels      map[string]string `json:"labels" jsonschema:"as given when it was made"`
	CreatedAt   string            `json:"created_at" jsonschema:"time in UTC"`
	ExpiresAt   string            `json:"expires_at" jsonschema:"when it ends by itself, in UTC"`
	MemoryBytes int64             `json:"memory_bytes" jsonschema:"its limit of memory"`
	DiskBytes   int64             `json:"disk_bytes" jsonschema:"its limit of disk"`
}

func shownSandbox(b *api.Sandbox) sandbox {
	s := sandbox{
		SandboxID: b.ID, State: string(b.State), Image: label(b.Image), Labels: map[string]string{},
		CreatedAt: stamp(b.CreatedAt), ExpiresAt: stamp(b.ExpiresAt), MemoryBytes: b.Limits.MemoryBytes, DiskBytes: b.Limits.DiskBytes,
	}
	for name, value := range b.Labels {
		s.Labels[label(name)] = label(value)
	}
	if b.Outcome != nil {
		s.Outcome = b.Outcome.Kind
	}
	return s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

type listInput struct {
	All    bool              `json:"all,omitempty" jsonschema:"also those that have ended, as long as they are on record"`
	Labels map[string]string `json:"labels,omitempty" jsonschema:"only those with these labels"`
}

type listOutput struct {
	Sandboxes []sandbox `json:"sandboxes" jsonschema:"newest first"`
	Truncated bool      `json:"truncated" jsonschema:"there are more than these"`
}

type sandboxInput struct {
	SandboxID string `json:"sandbox_id" jsonschema:"id from sandbox_create"`
}

func (s *Server) addSandboxTools() {
	add(s, tool{
		name: "sandbox_create", title: "Make a sandbox", does: "make a sandbox",
		description: "Make an isolated Linux sandbox (no network, its own kernel and limits) and return its id. " +
			"Commands, Python state and files live in it until sandbox_kill or until its time to live is over. Reuse one for related work.",
		hints:  mcp.ToolAnnotations{DestructiveHint: new(false)},
		advice: advice{api.ProblemCodeNotFound: "leave the image out to get the default one"},
	}, (*call).createSandbox)
	add(s, tool{
		name: "sandbox_list", title: "List sandboxes", does: "list the sandboxes",
		description: "List the live sandboxes of this API key's tenant, newest first; with all, those that have ended too, and how.",
		hints:       mcp.ToolAnnotations{ReadOnlyHint: true},
	}, (*call).listSandboxes)
	add(s, tool{
		name: "sandbox_kill", title: "End a sandbox", does: "end the sandbox",
		description: "End a sandbox with everything in it: commands, files, Python state. Killing one that has ended is no error.",
		hints:       mcp.ToolAnnotations{DestructiveHint: new(true), IdempotentHint: true},
		advice:      advice{api.ProblemCodeNotFound: "find its id with sandbox_list"},
	}, (*call).killSandbox)
}

func (c *call) createSandbox(ctx context.Context, in createInput) (sandbox, error) {
	ttl, err := seconds("ttl_seconds", in.TTLSeconds, defaultTTL)
	if err != nil {
		return sandbox{}, err
	}
	spec := api.SandboxSpec{
		Image: in.Image, Env: in.Env, Labels: in.Labels, TTLMS: ttl.Milliseconds(),
		Limits: api.Limits{MemoryBytes: in.MemoryBytes, DiskBytes: in.DiskBytes, MilliCPU: in.MilliCPU, OutputBytes: outputBytes},
	}
	// The answer is waited for even if nobody wants it any more: without it, what
	// was made would be nobody's until its time is over.
	box, err := c.CreateSandbox(context.WithoutCancel(ctx), spec)
	if err != nil {
		return sandbox{}, err
	}
	if ctx.Err() != nil {
		undo, cancel := detached(ctx)
		defer cancel()
		_, err := c.KillSandbox(undo, box.ID)
		return sandbox{}, errors.Join(ctx.Err(), err)
	}
	if c.s.owned != nil && !in.Keep {
		c.s.owned.add(box.ID)
	}
	return shownSandbox(box), nil
}

// seconds is a duration that was given as a number.
func seconds(name string, n int64, otherwise time.Duration) (time.Duration, error) {
	const most = 366 * 24 * 3600
	switch {
	case n == 0:
		return otherwise, nil
	case n < 0 || n > most:
		return 0, refuse(fmt.Sprintf("give a number from 1 to %d", most), "%s is %d", name, n)
	}
	return time.Duration(n) * time.Second, nil
}

func (c *call) listSandboxes(ctx context.Context, in listInput) (listOutput, error) {
	q := client.SandboxQuery{PageSize: mostListed, Labels: in.Labels}
	if !in.All {
		q.States = []api.SandboxState{api.SandboxStateCreating, api.SandboxStateRunning, api.SandboxStatePaused, api.SandboxStateEnding}
	}
	page, err := c.SandboxPage(ctx, q)
	if err != nil {
		return listOutput{}, err
	}
	out := listOutput{Sandboxes: []sandbox{}, Truncated: page.Next != ""}
	for _, b := range page.Sandboxes {
		out.Sandboxes = append(out.Sandboxes, shownSandbox(&b))
	}
	return out, nil
}

func (c *call) killSandbox(ctx context.Context, in sandboxInput) (sandbox, error) {
	box, err := c.KillSandbox(ctx, in.SandboxID)
	if err != nil {
		return sandbox{}, err
	}
	if c.s.owned != nil {
		c.s.owned.remove(box.ID)
	}
	return shownSandbox(box), nil
}
