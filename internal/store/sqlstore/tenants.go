package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

var errNoTenant = fault.New(fault.NotFound, "there is no such tenant")

const tenantColumns = `tenants.id, tenants.name, tenants.disabled, tenants.grants, tenants.created_at,
	tenants.quota_running, tenants.quota_queued, tenants.quota_milli_cpu, tenants.quota_memory_bytes,
	tenants.quota_artifact_bytes, tenants.requests_per_minute, tenants.quota_sandboxes, tenants.quota_upload_bytes`

func readTenant(row scanner) (tenant.Tenant, error) { return readTenantAnd(row) }

func readTenantAnd(row scanner, before ...any) (tenant.Tenant, error) {
	var t tenant.Tenant
	var grants []byte
	var created int64
	err := row.Scan(append(before, &t.ID, &t.Name, &t.Disabled, &grants, &created,
		&t.Quota.Running, &t.Quota.Queued, &t.Quota.MilliCPU, &t.Quota.MemoryBytes,
		&t.Quota.ArtifactBytes, &t.Quota.RequestsPerMinute, &t.Quota.Sandboxes, &t.Quota.UploadBytes)...)
	if err != nil {
		return tenant.Tenant{}, err
	}
	t.CreatedAt = fromMicros(created)
	return t, json.Unmarshal(grants, &t.Grants)
}

// settings are the arguments for what UpdateTenant replaces, behind the id.
func settings(t tenant.Tenant) []any {
	q := t.Quota
	return []any{t.ID, t.Name, t.Disabled, encode(t.Grants),
		q.Running, q.Queued, q.MilliCPU, q.MemoryBytes, q.ArtifactBytes, q.RequestsPerMinute, q.Sandboxes, q.UploadBytes}
}

// CreateTenant puts a tenant on record, with counters at zero.
func (s *Store) CreateTenant(ctx context.Context, t tenant.Tenant) error {
	if err := keepable(t.ID, t.Name); err != nil {
		return err
	}
	return s.write(ctx, "create the tenant", func(x *tx) error {
		n, err := x.exec(`INSERT INTO tenants (id, name, disabled, grants, quota_running, quota_queued, quota_milli_cpu,
				quota_memory_bytes, quota_artifact_bytes, requests_per_minute, quota_sandboxes, quota_upload_bytes, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, coalesce($13, agentdock_now()))
			ON CONFLICT (id) DO NOTHING`, append(settings(t), optional(t.CreatedAt))...)
		if err := one(n, err, fault.New(fault.Conflict, "there is a tenant %q already", t.ID)); err != nil {
			return err
		}
		_, err = x.exec(`INSERT INTO tenant_load (tenant_id) VALUES ($1)`, t.ID)
		return err
	})
}

// Tenant reads a tenant.
func (s *Store) Tenant(ctx context.Context, id string) (t tenant.Tenant, err error) {
	if !text(id) {
		return tenant.Tenant{}, errNoTenant
	}
	err = s.read(ctx, "read the tenant", func(ctx context.Context, db *sql.DB) error {
		t, err = readTenant(db.QueryRowContext(ctx, `SELECT `+tenantColumns+` FROM tenants WHERE id = $1`, id))
		return none(err, errNoTenant)
	})
	return t, err
}

// Tenants lists every tenant, by id.
func (s *Store) Tenants(ctx context.Context) (list []tenant.Tenant, err error) {
	err = s.read(ctx, "list tenants", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `SELECT `+tenantColumns+` FROM tenants ORDER BY id`)
		list, err = all(rows, err, readTenant)
		return err
	})
	return list, err
}

// UpdateTenant replaces everything but ID and CreatedAt.
func (s *Store) UpdateTenant(ctx context.Context, t tenant.Tenant) error {
	if err := keepable(t.ID, t.Name); err != nil {
		return err
	}
	return s.write(ctx, "change the tenant", func(x *tx) error {
		n, err := x.exec(`UPDATE tenants SET name = $2, disabled = $3, grants = $4, quota_running = $5, quota_queued = $6,
				quota_milli_cpu = $7, quota_memory_bytes = $8, quota_artifact_bytes = $9, requests_per_minute = $10,
				quota_sandboxes = $11, quota_upload_bytes = $12
			WHERE id = $1`, settings(t)...)
		return one(n, err, errNoTenant)
	})
}
