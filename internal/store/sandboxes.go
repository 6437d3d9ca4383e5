package store

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Sandboxes is the record of live sandboxes.
type Sandboxes interface {
	// CreateSandbox returns a sandbox with another id than the one asked for when
	// the idempotency key has brought back one that was made before.
	CreateSandbox(ctx context.Context, s NewSandbox) (run.Sandbox, error)
	Sandbox(ctx context.Context, tenantID, id string) (run.Sandbox, error)
	Sandboxes(ctx context.Context, q SandboxQuery) (SandboxPage, error)
	// SandboxOf is Sandbox for whoever has its access token, with its tenant.
	SandboxOf(ctx context.Context, id string) (run.Sandbox, tenant.Tenant, error)
	// PlaceSandbox notes the execution service that will have the sandbox,
	// before it is asked. It may be repeated while the sandbox is creating.
	PlaceSandbox(ctx context.Context, id, node string) error
	// StartSandbox makes it running.
	StartSandbox(ctx context.Context, id string, r run.Resolved) (run.Sandbox, error)
	// ExtendSandbox makes the time of a creating or running sandbox end ttl from
	// now, or at its deadline if that is sooner. With atLeast it never shortens
	// it. It fails with Gone when the time is over or the end has begun, and with Conflict when
	// it is paused.
	ExtendSandbox(ctx context.Context, tenantID, id string, ttl time.Duration, atLeast bool) (run.Sandbox, error)
	// PauseSandbox makes a running sandbox paused. Its time then ends at its
	// deadline.
	PauseSandbox(ctx context.Context, id string) (run.Sandbox, error)
	// ResumeSandbox makes a paused sandbox running. Its time then ends ttl from
	// now, or at its deadline.
	ResumeSandbox(ctx context.Context, id string, ttl time.Duration) (run.Sandbox, error)
	// EndSandbox begins the end of one that has not ended (ending). It may be
	// repeated and returns the sandbox as it is afterwards.
	EndSandbox(ctx context.Context, id string, o run.Outcome) (run.Sandbox, error)
	// EndDueSandboxes begins the end of those whose time is over since grace, as
	// wall_clock, and of those that have been creating for longer than starting,
	// as infrastructure_lost. It says how many.
	EndDueSandboxes(ctx context.Context, grace, starting time.Duration) (int, error)
	// RemovedSandbox says that nothing is left of one that is ending (ended). It
	// may be repeated.
	RemovedSandbox(ctx context.Context, id string) error
	// OpenSandboxes returns those that have not ended, by id, after one.
	OpenSandboxes(ctx context.Context, after string, limit int) ([]run.Sandbox, error)
	// SandboxesIn returns which of the ids are on record and have not ended.
	SandboxesIn(ctx context.Context, ids []string) (map[string]bool, error)
	// DeleteSandboxes removes what ended before a time, and says how many.
	DeleteSandboxes(ctx context.Context, before time.Time) (int, error)
}

// NewSandbox is a sandbox to be put on record, before it exists.
type NewSandbox struct {
	ID          string
	TenantID    string
	Spec        run.SandboxSpec
	AccessToken string
	// TTL is how long it lives unless it is extended, MaxLifetime how long in
	// any case.
	TTL, MaxLifetime time.Duration
	// IdempotencyKey may be empty. RequestDigest tells equal requests.
	IdempotencyKey string
	RequestDigest  [32]byte
}

// SandboxQuery says which sandboxes of a tenant.
type SandboxQuery struct {
	TenantID string
	// States, if any, and every label must match.
	States []run.SandboxState
	Labels map[string]string
	Limit  int
	// Cursor is SandboxPage.Next of the page before.
	Cursor string
}

// SandboxPage is a page of a list. Next is empty on the last.
type SandboxPage struct {
	Sandboxes []run.Sandbox
	Next      string
}
