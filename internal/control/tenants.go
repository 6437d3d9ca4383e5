package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

const (
	maxName         = 128
	maxRepositories = 1000
)

// CreateTenant makes a tenant with a quota of its own.
func (c *Control) CreateTenant(ctx context.Context, caller Caller, name string, quota tenant.Quota, grants tenant.Grants) (tenant.Tenant, error) {
	id, err := newID()
	if err != nil {
		return tenant.Tenant{}, err
	}
	t := tenant.Tenant{ID: id, Name: name, Quota: quota, Grants: grants, CreatedAt: now()}
	if err := checkTenant(t); err != nil {
		return tenant.Tenant{}, err
	}
	err = c.audited(ctx, caller, "tenant.create", id, func() error { return c.record.CreateTenant(ctx, t) })
	return t, err
}

// NewQuota is a new tenant's, unless somebody says something else.
func (c *Control) NewQuota() tenant.Quota { return c.cfg.Quota }

// Tenant returns any tenant.
func (c *Control) Tenant(ctx context.Context, id string) (tenant.Tenant, error) {
	if !isID(id) {
		return tenant.Tenant{}, noSuch("tenant", id)
	}
	t, err := c.record.Tenant(ctx, id)
	return t, orNoSuch(err, "tenant", id)
}

// Tenants returns all of them.
func (c *Control) Tenants(ctx context.Context) ([]tenant.Tenant, error) { return c.record.Tenants(ctx) }

// UpdateTenant changes a tenant. It is read and written in two steps: of two
// changes at once, the later one wins as a whole.
func (c *Control) UpdateTenant(ctx context.Context, caller Caller, id string, change func(*tenant.Tenant)) (tenant.Tenant, error) {
	t, err := c.Tenant(ctx, id)
	if err != nil {
		return tenant.Tenant{}, err
	}
	change(&t)
	if err := checkTenant(t); err != nil {
		return tenant.Tenant{}, err
	}
	if t.Disabled && t.ID == caller.Tenant.ID {
		return tenant.Tenant{}, fault.New(fault.Invalid, "a tenant cannot disable itself; nobody could undo it")
	}
	err = c.audited(ctx, caller, "tenant.update", id, func() error { return c.record.UpdateTenant(ctx, t) })
	return t, err
}

func checkTenant(t tenant.Tenant) error {
	if err := checkName("tenant", t.Name); err != nil {
		return err
	}
	q := t.Quota
	if q.Running < 0 || q.Queued < 0 || q.Sandboxes < 0 || q.MilliCPU < 0 || q.MemoryBytes < 0 || q.ArtifactBytes < 0 || q.UploadBytes < 0 || q.RequestsPerMinute < 0 {
		return fault.New(fault.Invalid, "a quota is negative; 0 does not bound")
	}
	if len(t.Grants.Repositories) > maxRepositories {
		return fault.New(fault.Invalid, "%d repositories are more than %d", len(t.Grants.Repositories), maxRepositories)
	}
	for _, r := range t.Grants.Repositories {
		owner, name, ok := strings.Cut(r, "/")
		if r != "*" && (!ok || owner == "" || owner == "*" || name == "" || strings.Contains(name, "/") || !printable(r) || len(r) > 255) {
			return fault.New(fault.Invalid, "the repository %q is none of owner/name, owner/* and *", clip(r))
		}
	}
	return nil
}

func checkName(what, name string) error {
	if strings.TrimSpace(name) == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.New(fault.Invalid, "the name of a %s is empty, longer than %d bytes or holds control characters", what, maxName)
	}
	return nil
}

// CreateKey makes a key of a tenant. The secret is returned here and kept
// nowhere.
func (c *Control) CreateKey(ctx context.Context, caller Caller, tenantID, name string, scopes []tenant.Scope, expires time.Time) (_ tenant.Key, secret string, _ error) {
	if _, err := c.Tenant(ctx, tenantID); err != nil {
		return tenant.Key{}, "", err
	}
	if err := checkName("key", name); err != nil {
		return tenant.Key{}, "", err
	}
	if err := checkScopes(scopes); err != nil {
		return tenant.Key{}, "", err
	}
	if !expires.IsZero() && !expires.After(time.Now()) {
		return tenant.Key{}, "", fault.New(fault.Invalid, "a key cannot expire in the past")
	}
	id, err := newID()
	if err != nil {
		return tenant.Key{}, "", err
	}
	secret, prefix, hash := newSecret()
	key := tenant.Key{ID: id, TenantID: tenantID, Name: name, Prefix: prefix, Hash: hash, Scopes: scopes, CreatedAt: now(), ExpiresAt: expires}
	if err := c.audited(ctx, caller, "key.create", id, func() error { return c.record.CreateKey(ctx, key) }); err != nil {
		return tenant.Key{}, "", err
	}
	return key, secret, nil
}

func checkScopes(scopes []tenant.Scope) error {
	if len(scopes) == 0 {
		return fault.New(fault.Invalid, "a key without a scope opens nothing; name one of %q", tenant.Scopes())
	}
	for i, s := range scopes {
		if !slices.Contains(tenant.Scopes(), s) {
			return fault.New(fault.Invalid, "there is no scope %q", clip(string(s)))
		}
		if slices.Contains(scopes[:i], s) {
			return fault.New(fault.Invalid, "the scope %s is named twice", s)
		}
	}
	return nil
}

// Keys lists the keys of a tenant, revoked ones too.
func (c *Control) Keys(ctx context.Context, tenantID string) ([]tenant.Key, error) {
	if _, err := c.Tenant(ctx, tenantID); err != nil {
		return nil, err
	}
	return c.record.Keys(ctx, tenantID)
}

// RevokeKey takes a key away. It may be repeated.
func (c *Control) RevokeKey(ctx context.Context, caller Caller, tenantID, keyID string) error {
	if !isID(tenantID) || !isID(keyID) {
		return noSuch("key", keyID)
	}
	return c.audited(ctx, caller, "key.revoke", keyID, func() error {
		return orNoSuch(c.record.RevokeKey(ctx, tenantID, keyID), "key", keyID)
	})
}

// now is the time as a record can keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
