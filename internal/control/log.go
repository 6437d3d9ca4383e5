package control

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// logBytes is how much of a log is in memory for one reader, at most but for an
// entry that is larger.
const logBytes = 64 << 10

// Log follows the log of a job. It holds nothing between calls but a place in
// it, so a reader may be as slow as it likes. It is for one reader.
type Log struct {
	c        *Control
	tenantID string
	id       string
	after    int64
	changed  <-chan struct{}
	stop     func()
}

// OpenLog begins after the entry with a Seq. The caller must Close it.
func (c *Control) OpenLog(ctx context.Context, caller Caller, id string, after int64) (*Log, error) {
	if _, err := c.Job(ctx, caller, id); err != nil {
		return nil, err
	}
	changed, stop, err := c.record.Watch(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Log{c: c, tenantID: caller.Tenant.ID, id: id, after: after, changed: changed, stop: stop}, nil
}

// Close frees what the log holds.
func (l *Log) Close() { l.stop() }

// Next returns the entries that follow, and waits for some until ctx ends. When
// the job has ended and all of its log was returned, it returns the job.
func (l *Log) Next(ctx context.Context) ([]run.LogEntry, *run.Job, error) {
	poll := time.NewTicker(l.c.cfg.LogPoll)
	defer poll.Stop()
	for {
		entries, ended, err := l.Now(ctx)
		if err != nil || len(entries) > 0 || ended != nil {
			return entries, ended, err
		}
		select {
		case <-l.changed:
		case <-poll.C: // hints can be lost
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// Now is Next without waiting: it returns nothing when there is nothing.
func (l *Log) Now(ctx context.Context) ([]run.LogEntry, *run.Job, error) {
	entries, err := l.read(ctx)
	if err != nil || len(entries) > 0 {
		return entries, nil, err
	}
	job, err := l.c.record.Job(ctx, l.tenantID, l.id)
	if err != nil || !job.State.Terminal() {
		return nil, nil, orNoSuch(err, "job", l.id)
	}
	// What was appended between the two looks was so before the end.
	if entries, err = l.read(ctx); err != nil || len(entries) > 0 {
		return entries, nil, err
	}
	return nil, &job, nil
}

func (l *Log) read(ctx context.Context) ([]run.LogEntry, error) {
	entries, err := l.c.record.Log(ctx, l.tenantID, l.id, l.after, logBytes)
	if err != nil {
		return nil, orNoSuch(err, "job", l.id)
	}
	if len(entries) > 0 {
		l.after = entries[len(entries)-1].Seq
	}
	return entries, nil
}
