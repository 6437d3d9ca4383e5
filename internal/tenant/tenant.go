// Package tenant holds who may do what: tenants, their keys, scopes, quotas.
// It imports the standard library only.
package tenant

import (
	"slices"
	"strings"
	"time"
)

// Tenant owns jobs and whatever belongs to them. Nothing of one tenant can be
// seen by another.
type Tenant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Quota bounds what the tenant uses at once.
	Quota  Quota  `json:"quota"`
	Grants Grants `json:"grants"`
	// Disabled tenants keep their record and can do nothing.
	Disabled  bool      `json:"disabled,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// Quota bounds a tenant. A field that is 0 does not bound.
type Quota struct {
	// Running and Queued count jobs.
	Running int `json:"running"`
	Queued  int `json:"queued"`
	// Sandboxes counts live ones, from before they exist until nothing is left.
	Sandboxes int `json:"sandboxes"`
	// MilliCPU and MemoryBytes add up the limits of active jobs and of live
	// sandboxes.
	MilliCPU    int64 `json:"milli_cpu"`
	MemoryBytes int64 `json:"memory_bytes"`
	// ArtifactBytes adds up the artifacts that are kept, and UploadBytes the
	// archives that were uploaded or are being uploaded.
	ArtifactBytes     int64 `json:"artifact_bytes"`
	UploadBytes       int64 `json:"upload_bytes"`
	RequestsPerMinute int   `json:"requests_per_minute"`
}

// DefaultQuota is what a tenant gets whose operator sets nothing else.
func DefaultQuota() Quota {
	return Quota{
		Running: 16, Queued: 10_000, Sandboxes: 16,
		MilliCPU: 16_000, MemoryBytes: 32 << 30,
		ArtifactBytes: 10 << 30, UploadBytes: 10 << 30, RequestsPerMinute: 600,
	}
}

// Grants allow what is refused to everybody else.
type Grants struct {
	// Shell allows commands that are shells (REQUIREMENTS B8).
	Shell bool `json:"shell"`
	// Repositories are those that are fetched for the tenant with the rights of
	// the GitHub App, which may be installed for other tenants too: "owner/name",
	// "owner/*", or "*" for every one. Without a match, a repository is fetched
	// as anybody could, so only if it is public.
	Repositories []string `json:"repositories,omitempty"`
}

// Reads reports whether Repositories covers the repository. Case does not
// matter, as on GitHub.
func (g Grants) Reads(owner, name string) bool {
	return slices.ContainsFunc(g.Repositories, func(pattern string) bool {
		o, n, ok := strings.Cut(pattern, "/")
		return pattern == "*" || ok && strings.EqualFold(o, owner) && (n == "*" || strings.EqualFold(n, name))
	})
}

// Scope is something a key may do.
type Scope string

const (
	JobsRead  Scope = "jobs:read"
	JobsWrite Scope = "jobs:write"
	// SandboxesRead sees live sandboxes, their output and their files;
	// SandboxesWrite makes them and does anything with them.
	SandboxesRead  Scope = "sandboxes:read"
	SandboxesWrite Scope = "sandboxes:write"
	// Admin makes and changes tenants and keys, of every tenant. It reads no
	// job and no sandbox.
	Admin Scope = "admin"
)

// Scopes lists every scope.
func Scopes() []Scope { return []Scope{JobsRead, JobsWrite, SandboxesRead, SandboxesWrite, Admin} }

// Key is an API key on record. The secret itself is nowhere.
type Key struct {
	ID       string `json:"id"`
	TenantID string `json:"tenant_id"`
	Name     string `json:"name"`
	// Prefix is the part of the secret by which people tell keys apart.
	Prefix string `json:"prefix"`
	// Hash is the SHA-256 of the whole secret, which is random and long enough
	// that nothing slower is needed.
	Hash       [32]byte  `json:"-"`
	Scopes     []Scope   `json:"scopes"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
}

// Usable reports whether the key opens anything at this time.
func (k Key) Usable(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// Principal is who makes a request.
type Principal struct {
	Tenant Tenant
	KeyID  string
	Scopes []Scope
}

// Has reports whether the principal may do what s names.
func (p Principal) Has(s Scope) bool { return slices.Contains(p.Scopes, s) }
