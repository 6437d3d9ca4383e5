package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

// undoTime bounds the removal of an upload that failed.
const undoTime = 30 * time.Second

// ErrTooLarge is the cause of the error about an upload that is too large.
var ErrTooLarge = errors.New("it is too large")

// Upload keeps an archive for jobs to come. It is on record before its first
// byte is kept, so what a crash leaves behind is found and removed.
func (c *Control) Upload(ctx context.Context, caller Caller, r io.Reader, size int64) (u store.Upload, err error) {
	id, err := newID()
	if err != nil {
		return store.Upload{}, err
	}
	defer func() { c.audit(ctx, caller, "upload.create", id, err) }()
	if size > c.cfg.MaxUploadBytes {
		return store.Upload{}, c.tooLarge()
	}
	u = store.Upload{ID: id, TenantID: caller.Tenant.ID, Key: "uploads/" + caller.Tenant.ID + "/" + id, Bytes: max(0, size), CreatedAt: now()}
	if err := c.record.CreateUpload(ctx, u); err != nil {
		return store.Upload{}, err
	}
	body := &measured{r: r, most: c.cfg.MaxUploadBytes, aside: u.Bytes, sum: sha256.New(), more: func(least, most int64) (int64, error) {
		return c.record.GrowUpload(ctx, u.ID, least, most)
	}}
	_, err = c.blobs.Put(ctx, u.Key, body, size)
	switch {
	case errors.Is(body.err, ErrTooLarge):
		err = c.tooLarge()
	case body.noRoom != nil:
		err = body.noRoom
	case body.err != nil: // the caller's connection, and not the storage
		err = fault.Wrap(fault.Invalid, body.err, "cannot read the archive to its end")
	case fault.Is(err, fault.Exhausted): // the operator's storage, and no limit of the caller's
		err = fault.Wrap(fault.Unavailable, err, "the service has no room to keep the archive")
	case err == nil && body.n == 0:
		err = fault.New(fault.Invalid, "the archive is empty")
	}
	if err == nil {
		u.Bytes, u.SHA256, u.Complete = body.n, hex.EncodeToString(body.sum.Sum(nil)), true
		err = c.record.CompleteUpload(ctx, u.ID, u.Bytes, u.SHA256)
	}
	if err != nil {
		c.undoUpload(ctx, u)
		return store.Upload{}, err
	}
	return u, nil
}

func (c *Control) tooLarge() error {
	return fault.Wrap(fault.Invalid, ErrTooLarge, "the archive is larger than %d bytes", c.cfg.MaxUploadBytes)
}

// undoUpload removes the bytes first: as long as they may be there, they are on
// record. What it cannot remove is found later, as an upload nobody uses.
func (c *Control) undoUpload(ctx context.Context, u store.Upload) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := c.blobs.Delete(ctx, u.Key)
	if err == nil {
		err = c.record.DeleteUpload(ctx, u.ID)
	}
	if err != nil {
		c.log.WarnContext(ctx, "cannot remove an upload that failed; the sweep will", slog.String("upload", u.ID), slog.Any("error", err))
	}
}

// growBy is how much room an upload whose size is not known sets aside at once.
// What a crash leaves behind holds no more of the quota than that beyond what
// came.
const growBy = 16 << 20

// measured counts and digests what is read through it, has room set aside before
// it hands anything on, and ends it when it is too much. It remembers what the
// reader said, whatever becomes of it.
type measured struct {
	r           io.Reader
	n           int64
	most, aside int64
	more        func(least, most int64) (aside int64, _ error)
	sum         hash.Hash
	err         error // the caller's side
	noRoom      error // ours
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	if m.n > m.most {
		m.err = ErrTooLarge
		return 0, m.err
	}
	if m.n > m.aside {
		if m.aside, m.noRoom = m.more(m.n, min(m.most, m.n+growBy)); m.noRoom != nil {
			return 0, m.noRoom
		}
	}
	m.sum.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}
