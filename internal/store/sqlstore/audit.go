package sqlstore

import (
	"context"
	"database/sql"
	"strings"

	"github.com/agentdock/agentdock/internal/store"
)

// AppendAudit puts on record who did what. Entries become visible in the order
// of their numbers, so whoever reads on from the last one misses none.
func (s *Store) AppendAudit(ctx context.Context, e store.AuditEntry) error {
	// What an attacker sends is on record too, without what cannot be.
	for _, field := range []*string{&e.TenantID, &e.KeyID, &e.Action, &e.Object, &e.Result, &e.Remote} {
		*field = strings.ReplaceAll(strings.ToValidUTF8(*field, "\uFFFD"), "\x00", "\uFFFD")
	}
	return s.write(ctx, "add to the audit log", func(t *tx) error {
		if s.e.AuditLock != "" {
			if _, err := t.exec(s.e.AuditLock); err != nil {
				return err
			}
		}
		_, err := t.exec(`INSERT INTO audit (at, tenant_id, key_id, action, object, result, remote)
			VALUES (coalesce($1, agentdock_now()), $2, $3, $4, $5, $6, $7)`,
			optional(e.At), e.TenantID, e.KeyID, e.Action, e.Object, e.Result, e.Remote)
		return err
	})
}

// AuditLog reads on from an entry.
func (s *Store) AuditLog(ctx context.Context, tenantID string, after int64, limit int) (list []store.AuditEntry, err error) {
	if !text(tenantID) {
		return nil, nil
	}
	where, args := `seq > $1`, []any{after, limit}
	if tenantID != "" {
		where, args = `tenant_id = $3 AND seq > $1`, append(args, tenantID)
	}
	err = s.read(ctx, "read the audit log", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `SELECT seq, at, tenant_id, key_id, action, object, result, remote
			FROM audit WHERE `+where+` ORDER BY seq LIMIT $2`, args...)
		list, err = all(rows, err, func(row scanner) (e store.AuditEntry, err error) {
			var at int64
			err = row.Scan(&e.Seq, &at, &e.TenantID, &e.KeyID, &e.Action, &e.Object, &e.Result, &e.Remote)
			e.At = fromMicros(at)
			return e, err
		})
		return err
	})
	return list, err
}
