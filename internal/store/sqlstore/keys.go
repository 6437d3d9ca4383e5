package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

var errNoKey = fault.New(fault.NotFound, "there is no such key")

const keyColumns = `api_keys.id, api_keys.tenant_id, api_keys.name, api_keys.prefix, api_keys.hash, api_keys.scopes,
	api_keys.created_at, api_keys.expires_at, api_keys.last_used_at, api_keys.revoked_at`

// keyRow is what keyColumns are read into.
type keyRow struct {
	key                        tenant.Key
	hash, scopes               []byte
	created                    int64
	expires, lastUsed, revoked sql.NullInt64
}

func (r *keyRow) dest() []any {
	return []any{&r.key.ID, &r.key.TenantID, &r.key.Name, &r.key.Prefix, &r.hash, &r.scopes,
		&r.created, &r.expires, &r.lastUsed, &r.revoked}
}

func (r *keyRow) read() (tenant.Key, error) {
	k := r.key
	copy(k.Hash[:], r.hash)
	k.CreatedAt, k.ExpiresAt = fromMicros(r.created), fromOptional(r.expires)
	k.LastUsedAt, k.RevokedAt = fromOptional(r.lastUsed), fromOptional(r.revoked)
	return k, json.Unmarshal(r.scopes, &k.Scopes)
}

// CreateKey puts a key on record.
func (s *Store) CreateKey(ctx context.Context, k tenant.Key) error {
	if err := keepable(k.ID, k.TenantID, k.Name, k.Prefix); err != nil {
		return err
	}
	return s.write(ctx, "create the key", func(t *tx) error {
		if _, err := t.lockLoad(k.TenantID); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, agentdock_now()), $8) ON CONFLICT DO NOTHING`,
			k.ID, k.TenantID, k.Name, k.Prefix, k.Hash[:], encode(k.Scopes), optional(k.CreatedAt), optional(k.ExpiresAt))
		return one(n, err, fault.New(fault.Conflict, "there is a key with this id or secret already"))
	})
}

// KeyByHash finds a key by the digest of its secret, with its tenant.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (key tenant.Key, owner tenant.Tenant, err error) {
	err = s.read(ctx, "look up the key", func(ctx context.Context, db *sql.DB) error {
		var r keyRow
		owner, err = readTenantAnd(db.QueryRowContext(ctx, `SELECT `+keyColumns+`, `+tenantColumns+`
			FROM api_keys JOIN tenants ON tenants.id = api_keys.tenant_id WHERE api_keys.hash = $1`, hash[:]), r.dest()...)
		if err := none(err, errNoKey); err != nil {
			return err
		}
		key, err = r.read()
		return err
	})
	return key, owner, err
}

// Keys lists a tenant's keys, oldest first.
func (s *Store) Keys(ctx context.Context, tenantID string) (list []tenant.Key, err error) {
	if !text(tenantID) {
		return nil, nil
	}
	err = s.read(ctx, "list keys", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE tenant_id = $1 ORDER BY created_at, id`, tenantID)
		list, err = all(rows, err, func(row scanner) (tenant.Key, error) {
			var r keyRow
			if err := row.Scan(r.dest()...); err != nil {
				return tenant.Key{}, err
			}
			return r.read()
		})
		return err
	})
	return list, err
}

// RevokeKey makes a key open nothing any more. It may be repeated: the first
// time stays.
func (s *Store) RevokeKey(ctx context.Context, tenantID, keyID string) error {
	if !text(tenantID) || !text(keyID) {
		return errNoKey
	}
	return s.write(ctx, "revoke the key", func(t *tx) error {
		n, err := t.exec(`UPDATE api_keys SET revoked_at = coalesce(revoked_at, agentdock_now()) WHERE id = $1 AND tenant_id = $2`, keyID, tenantID)
		return one(n, err, errNoKey)
	})
}

// TouchKey notes that a key was used. An older time changes nothing.
func (s *Store) TouchKey(ctx context.Context, keyID string, at time.Time) error {
	if !text(keyID) {
		return errNoKey
	}
	return s.write(ctx, "note the use of the key", func(t *tx) error {
		_, err := t.exec(`UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)`,
			keyID, micros(at))
		return err
	})
}
