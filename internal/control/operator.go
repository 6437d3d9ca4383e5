package control

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

// OperatorID is the tenant that whoever runs the service is, on first use.
const OperatorID = "00000000-0000-7000-8000-000000000001"

// Operator returns the operator's tenant, and makes it when there is none. Its
// quota does not bound.
func (c *Control) Operator(ctx context.Context) (tenant.Tenant, error) {
	t, err := c.record.Tenant(ctx, OperatorID)
	if !fault.Is(err, fault.NotFound) {
		return t, err
	}
	t = tenant.Tenant{ID: OperatorID, Name: "operator", CreatedAt: now()}
	if err := c.record.CreateTenant(ctx, t); err != nil && !fault.Is(err, fault.Conflict) {
		return tenant.Tenant{}, err
	}
	return c.record.Tenant(ctx, OperatorID) // another process may have made it
}

// FirstKey makes a key with every scope for the operator when there is no key
// of his that opens anything. It returns "" when there is one.
func (c *Control) FirstKey(ctx context.Context) (secret string, _ error) {
	t, err := c.Operator(ctx)
	if err != nil {
		return "", err
	}
	keys, err := c.record.Keys(ctx, t.ID)
	if err != nil {
		return "", err
	}
	for _, k := range keys {
		if k.Usable(time.Now()) && (tenant.Principal{Scopes: k.Scopes}).Has(tenant.Admin) {
			return "", nil
		}
	}
	local := Caller{Principal: tenant.Principal{Tenant: t}, Remote: "local"}
	_, secret, err = c.CreateKey(ctx, local, t.ID, "first", tenant.Scopes(), time.Time{})
	return secret, err
}

// Developer is the caller of a service that asks for no key: the operator, with
// every scope.
func (c *Control) Developer(ctx context.Context) (tenant.Principal, error) {
	t, err := c.Operator(ctx)
	if err != nil {
		return tenant.Principal{}, err
	}
	return tenant.Principal{Tenant: t, Scopes: tenant.Scopes()}, nil
}
