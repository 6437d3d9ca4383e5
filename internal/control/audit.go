package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

// auditTime bounds the write of an entry, which goes on when the caller is gone.
const auditTime = 10 * time.Second

func (c *Control) entry(caller Caller, action, object string, err error) store.AuditEntry {
	result := "ok"
	if err != nil {
		result = string(fault.CodeOf(err))
	}
	return store.AuditEntry{
		At: time.Now(), TenantID: caller.Tenant.ID, KeyID: caller.KeyID,
		Action: action, Object: object, Result: result, Remote: caller.Remote,
	}
}

// audit notes what a caller did, or was refused. It comes after the deed, so a
// record that goes away in between leaves the entry to the log.
func (c *Control) audit(ctx context.Context, caller Caller, action, object string, err error) {
	e := c.entry(caller, action, object, err)
	if failed := c.append(ctx, e); failed != nil {
		c.log.ErrorContext(ctx, "cannot write to the audit log", slog.Any("entry", e), slog.Any("error", failed))
	}
}

func (c *Control) append(ctx context.Context, e store.AuditEntry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTime)
	defer cancel()
	return c.record.AppendAudit(ctx, e)
}

// audited does something that must not go unnoticed: that it begins is on
// record before, or it does not happen.
func (c *Control) audited(ctx context.Context, caller Caller, action, object string, do func() error) error {
	begun := c.entry(caller, action, object, nil)
	begun.Result = "begun"
	if err := c.append(ctx, begun); err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot do what cannot be put on record")
	}
	err := do()
	c.audit(ctx, caller, action, object, err)
	return err
}

// Audit notes what a caller did, or was refused, in another use case.
func (c *Control) Audit(ctx context.Context, caller Caller, action, object string, err error) {
	c.audit(ctx, caller, action, object, err)
}

// Refused notes that a caller, who may be nobody, was not let in.
func (c *Control) Refused(ctx context.Context, caller Caller, action string, err error) {
	c.audit(ctx, caller, action, "", err)
}

// AuditLog returns entries after a Seq, oldest first; of every tenant when
// tenantID is empty.
func (c *Control) AuditLog(ctx context.Context, tenantID string, after int64, limit int) ([]store.AuditEntry, error) {
	limit, err := PageSize(limit)
	if err != nil {
		return nil, err
	}
	if tenantID != "" && !isID(tenantID) {
		return nil, noSuch("tenant", tenantID)
	}
	return c.record.AuditLog(ctx, tenantID, after, limit)
}
