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
		l, err := t.lockLoad(u.TenantID)
		if err != nil {
			return err
		}
		if l.quota.uploadBs > 0 && u.Bytes > l.quota.uploadBs {
			return fault.New(fault.Invalid, "the archive has %d bytes and the tenant's whole quota of uploads is %d; send less", u.Bytes, l.quota.uploadBs)
		}
		if _, err := t.setAside(u.TenantID, l, u.Bytes, u.Bytes); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO uploads (id, tenant_id, blob_key, bytes, sha256, complete, created_at, used_at)
			VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, agentdock_now()), coalesce($7, agentdock_now())) ON CONFLICT (id) DO NOTHING`,
			u.ID, u.TenantID, u.Key, u.Bytes, u.SHA256, u.Complete, optional(u.CreatedAt))
		return one(n, err, fault.New(fault.Conflict, "there is an upload with this id already"))
	})
}

// setAside takes of a tenant's quota of uploads what it has up to most bytes,
// but at least least.
func (t *tx) setAside(tenantID string, l load, least, most int64) (int64, error) {
	granted := most
	if l.quota.uploadBs > 0 {
		granted = min(most, l.quota.uploadBs-l.uploadBytes)
	}
	if granted < least {
		return 0, fault.New(fault.Exhausted, "the tenant's uploads take %d bytes and its quota is %d; those that no job needs are removed after some time",
			l.uploadBytes, l.quota.uploadBs)
	}
	return granted, t.uploadBytes(tenantID, granted)
}

func (t *tx) uploadBytes(tenantID string, change int64) error {
	_, err := t.exec(`UPDATE tenant_load SET upload_bytes = upload_bytes + $2 WHERE tenant_id = $1`, tenantID, change)
	return err
}

// lockUpload locks the counters of the tenant that has an upload, and then that.
func (t *tx) lockUpload(id string) (store.Upload, load, error) {
	var tenantID string
	ok, err := t.scan([]any{&tenantID}, `SELECT tenant_id FROM uploads WHERE id = $1`, id)
	if err != nil {
		return store.Upload{}, load{}, err
	}
	if !ok {
		return store.Upload{}, load{}, errNoUpload
	}
	l, err := t.lockLoad(tenantID)
	if err != nil {
		return store.Upload{}, load{}, err
	}
	u, err := readUpload(t.QueryRowContext(t.ctx, `SELECT `+uploadColumns+` FROM uploads WHERE id = $1`+t.lock("uploads"), id))
	return u, l, none(err, errNoUpload)
}

// GrowUpload sets more bytes aside for an upload that goes on (U2).
func (s *Store) GrowUpload(ctx context.Context, id string, least, most int64) (aside int64, err error) {
	if !text(id) {
		return 0, errNoUpload
	}
	err = s.write(ctx, "set room aside for the upload", func(t *tx) error {
		u, l, err := t.lockUpload(id)
		if err != nil {
			return err
		}
		if u.Complete {
			return fault.New(fault.Conflict, "the upload is complete")
		}
		if aside = u.Bytes; aside >= most {
			return nil
		}
		more, err := t.setAside(u.TenantID, l, max(0, least-aside), most-aside)
		if err != nil {
			return err
		}
		aside += more
		_, err = t.exec(`UPDATE uploads SET bytes = $2 WHERE id = $1`, id, aside)
		return err
	})
	return aside, err
}

// CompleteUpload notes that the bytes are kept.
func (s *Store) CompleteUpload(ctx context.Context, id string, bytes int64, sha256 string) error {
	if err := keepable(id, sha256); err != nil {
		return err
	}
	return s.write(ctx, "note that the upload is complete", func(t *tx) error {
		u, _, err := t.lockUpload(id)
		if err != nil {
			return err
		}
		if bytes > u.Bytes {
			return fault.New(fault.Invalid, "the upload has %d bytes and %d were set aside for it", bytes, u.Bytes)
		}
		if _, err := t.exec(`UPDATE uploads SET complete = TRUE, bytes = $2, sha256 = $3 WHERE id = $1`, id, bytes, sha256); err != nil {
			return err
		}
		return t.uploadBytes(u.TenantID, bytes-u.Bytes)
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
		u, _, err := t.lockUpload(id)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM uploads WHERE id = $1`, id); err != nil {
			return err
		}
		return t.uploadBytes(u.TenantID, -u.Bytes)
	})
}
