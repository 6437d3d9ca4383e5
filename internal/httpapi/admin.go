package httpapi

import (
	"context"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/tenant"
)

func (h *handlers) CreateTenant(ctx context.Context, r CreateTenantRequestObject) (CreateTenantResponseObject, error) {
	quota := h.control.NewQuota()
	change(&quota, r.Body.Quota)
	var grants tenant.Grants
	changeGrants(&grants, r.Body.Grants)
	t, err := h.control.CreateTenant(ctx, h.caller(ctx), r.Body.Name, quota, grants)
	if err != nil {
		return nil, err
	}
	return CreateTenant201JSONResponse(fromTenant(t)), nil
}

func (h *handlers) ListTenants(ctx context.Context, _ ListTenantsRequestObject) (ListTenantsResponseObject, error) {
	all, err := h.control.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	list := api.TenantList{Tenants: make([]api.Tenant, 0, len(all))}
	for _, t := range all {
		list.Tenants = append(list.Tenants, fromTenant(t))
	}
	return ListTenants200JSONResponse(list), nil
}

func (h *handlers) GetTenant(ctx context.Context, r GetTenantRequestObject) (GetTenantResponseObject, error) {
	t, err := h.control.Tenant(ctx, r.TenantID)
	if err != nil {
		return nil, err
	}
	return GetTenant200JSONResponse(fromTenant(t)), nil
}

func (h *handlers) UpdateTenant(ctx context.Context, r UpdateTenantRequestObject) (UpdateTenantResponseObject, error) {
	t, err := h.control.UpdateTenant(ctx, h.caller(ctx), r.TenantID, func(t *tenant.Tenant) {
		if r.Body.Name != "" {
			t.Name = r.Body.Name
		}
		change(&t.Quota, r.Body.Quota)
		changeGrants(&t.Grants, r.Body.Grants)
		set(&t.Disabled, r.Body.Disabled)
	})
	if err != nil {
		return nil, err
	}
	return UpdateTenant200JSONResponse(fromTenant(t)), nil
}

func (h *handlers) CreateKey(ctx context.Context, r CreateKeyRequestObject) (CreateKeyResponseObject, error) {
	scopes := make([]tenant.Scope, len(r.Body.Scopes))
	for i, s := range r.Body.Scopes {
		scopes[i] = tenant.Scope(s)
	}
	key, secret, err := h.control.CreateKey(ctx, h.caller(ctx), r.TenantID, r.Body.Name, scopes, r.Body.ExpiresAt)
	if err != nil {
		return nil, err
	}
	return CreateKey201JSONResponse(api.NewKey{Key: fromKey(key), Secret: secret}), nil
}

func (h *handlers) ListKeys(ctx context.Context, r ListKeysRequestObject) (ListKeysResponseObject, error) {
	all, err := h.control.Keys(ctx, r.TenantID)
	if err != nil {
		return nil, err
	}
	list := api.KeyList{Keys: make([]api.Key, 0, len(all))}
	for _, k := range all {
		list.Keys = append(list.Keys, fromKey(k))
	}
	return ListKeys200JSONResponse(list), nil
}

func (h *handlers) RevokeKey(ctx context.Context, r RevokeKeyRequestObject) (RevokeKeyResponseObject, error) {
	if err := h.control.RevokeKey(ctx, h.caller(ctx), r.TenantID, r.KeyID); err != nil {
		return nil, err
	}
	return RevokeKey204Response{}, nil
}

func (h *handlers) ListAudit(ctx context.Context, r ListAuditRequestObject) (ListAuditResponseObject, error) {
	all, err := h.control.AuditLog(ctx, r.Params.TenantID, r.Params.After, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	list := api.AuditList{Entries: make([]api.AuditEntry, 0, len(all))}
	for _, e := range all {
		list.Entries = append(list.Entries, api.AuditEntry{
			Seq: e.Seq, At: e.At.UTC(), TenantID: e.TenantID, KeyID: e.KeyID, Action: e.Action, Object: e.Object, Result: e.Result, Remote: e.Remote,
		})
	}
	return ListAudit200JSONResponse(list), nil
}
