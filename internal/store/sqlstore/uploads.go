package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

var errNoUpload = fault.New(fault.NotFound, "there is no such upload")

const uploadColumns = `id, tenant_id, blob_key, bytes, sha256, complete, created_at`

func readUpload(row scanner) (u store.Upload, err error) {
	var created int64
	err = row.Scan(&u.ID, &u.TenantID, &u.Key, &u.Bytes, &u.SHA256, &u.Complete, &created)
	u.CreatedAt = fromMicros(created)
	return u, err
}

// CreateUpload puts an archive on record whose bytes do not exist yet.
func (s *Store) CreateUpload(ctx context.Context, u store.Upload) error {
	if err := keepable(u.ID, u.TenantID, u.Key, u.SHA256); err != nil {
		return err
	}
	return s.write(ctx, "put the upload on record", func(t *tx) error {
		if _, err := t.lockLoad(u.TenantID); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO uploads (id, tenant_id, blob_key, bytes, sha256, complete, created_at, used_at)
			VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, agentdock_now()), coalesce($7, agentdock_now())) ON CONFLICT (id) DO NOTHING`,
			u.ID, u.TenantID, u.Key, u.Bytes, u.SHA256, u.Complete, optional(u.CreatedAt))
		return one(n, err, fault.New(fault.Conflict, "there is an upload with this id already"))
	})
}

// CompleteUpload notes that the bytes are kept.
func (s *Store) CompleteUpload(ctx context.Context, id string, bytes int64, sha256 string) error {
	if err := keepable(id, sha256); err != nil {
		return err
	}
	return s.write(ctx, "note that the upload is complete", func(t *tx) error {
		n, err := t.exec(`UPDATE uploads SET complete = TRUE, bytes = $2, sha256 = $3 WHERE id = $1`, id, bytes, sha256)
		return one(n, err, errNoUpload)
	})
}

// Upload reads what is known of a tenant's archive.
func (s *Store) Upload(ctx context.Context, tenantID, id string) (u store.Upload, err error) {
	if !text(tenantID) || !text(id) {
		return store.Upload{}, errNoUpload
	}
	err = s.read(ctx, "read the upload", func(ctx context.Context, db *sql.DB) error {
		u, err = readUpload(db.QueryRowContext(ctx, `SELECT `+uploadColumns+` FROM uploads WHERE id = $1 AND tenant_id = $2`, id, tenantID))
		return none(err, errNoUpload)
	})
	return u, err
}

const staleUploads = `SELECT ` + uploadColumns + ` FROM uploads
	WHERE created_at < $1 AND used_at < $1 AND NOT EXISTS (SELECT 1 FROM jobs
		WHERE jobs.upload_id = uploads.id AND jobs.finished_at IS NULL)
	ORDER BY created_at, id LIMIT $2`

// StaleUploads lists archives that nobody needs any more, and takes them from
// everybody: a job that is created at the same time either finds its upload
// incomplete, or has moved used_at and keeps it from being found.
func (s *Store) StaleUploads(ctx context.Context, before time.Time, limit int) (list []store.Upload, err error) {
	err = s.write(ctx, "look for uploads that nobody needs", func(t *tx) error {
		rows, err := t.QueryContext(t.ctx, staleUploads+t.lock("uploads"), micros(before), limit)
		if list, err = all(rows, err, readUpload); err != nil {
			return err
		}
		for _, u := range list {
			if _, err := t.exec(`UPDATE uploads SET complete = FALSE WHERE id = $1`, u.ID); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range list {
		list[i].Complete = false
	}
	return list, err
}

// DeleteUpload takes an archive off the record.
func (s *Store) DeleteUpload(ctx context.Context, id string) error {
	if !text(id) {
		return nil
	}
	return s.write(ctx, "delete the upload", func(t *tx) error {
		_, err := t.exec(`DELETE FROM uploads WHERE id = $1`, id)
		return err
	})
}
