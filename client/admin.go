package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/agentdock/agentdock/api"
)

// WhoAmI says whose key the client has and what it may do.
func (c *Client) WhoAmI(ctx context.Context) (*api.Identity, error) {
	var id api.Identity
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/whoami"}, &id)
	return orNil(&id, err)
}

// Ready returns nil when the service can serve requests now.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodGet, path: "/readyz", once: true}, nil)
}

// What follows needs the scope admin.

const tenantsPath = "/v1/admin/tenants"

// CreateTenant makes a tenant. It is not repeated by itself: it has no
// idempotency key.
func (c *Client) CreateTenant(ctx context.Context, spec api.TenantSpec) (*api.Tenant, error) {
	var t api.Tenant
	err := c.do(ctx, call{method: http.MethodPost, path: tenantsPath, body: spec, once: true}, &t)
	return orNil(&t, err)
}

// Tenants lists all tenants.
func (c *Client) Tenants(ctx context.Context) ([]api.Tenant, error) {
	var list api.TenantList
	err := c.do(ctx, call{method: http.MethodGet, path: tenantsPath}, &list)
	return list.Tenants, err
}

// Tenant returns a tenant.
func (c *Client) Tenant(ctx context.Context, id string) (*api.Tenant, error) {
	var t api.Tenant
	err := c.do(ctx, call{method: http.MethodGet, path: tenantsPath + "/" + url.PathEscape(id)}, &t)
	return orNil(&t, err)
}

// UpdateTenant changes what is set and leaves the rest.
func (c *Client) UpdateTenant(ctx context.Context, id string, change api.TenantChange) (*api.Tenant, error) {
	var t api.Tenant
	err := c.do(ctx, call{method: http.MethodPatch, path: tenantsPath + "/" + url.PathEscape(id), body: change}, &t)
	return orNil(&t, err)
}

// CreateKey makes a key. Its secret is in the answer and nowhere else. It is not
// repeated by itself.
func (c *Client) CreateKey(ctx context.Context, tenantID string, spec api.KeySpec) (*api.NewKey, error) {
	var k api.NewKey
	err := c.do(ctx, call{method: http.MethodPost, path: keysPath(tenantID), body: spec, once: true}, &k)
	return orNil(&k, err)
}

// Keys lists the keys of a tenant without their secrets.
func (c *Client) Keys(ctx context.Context, tenantID string) ([]api.Key, error) {
	var list api.KeyList
	err := c.do(ctx, call{method: http.MethodGet, path: keysPath(tenantID)}, &list)
	return list.Keys, err
}

// RevokeKey takes a key away at once.
func (c *Client) RevokeKey(ctx context.Context, tenantID, keyID string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: keysPath(tenantID) + "/" + url.PathEscape(keyID)}, nil)
}

func keysPath(tenantID string) string { return tenantsPath + "/" + url.PathEscape(tenantID) + "/keys" }

// AuditLog returns entries after a Seq, oldest first; of every tenant when
// tenantID is empty. A limit of 0 is left to the service.
func (c *Client) AuditLog(ctx context.Context, tenantID string, after int64, limit int) ([]api.AuditEntry, error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if tenantID != "" {
		query.Set("tenant_id", tenantID)
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var list api.AuditList
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/admin/audit", query: query}, &list)
	return list.Entries, err
}
