package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Claim gives a worker a job that nobody holds: one that was left behind, or
// else the oldest of the tenant whose turn it is (L1, L3, L4).
func (s *Store) Claim(ctx context.Context, worker string, ttl time.Duration) (c store.Claimed, ok bool, err error) {
	if err := keepable(worker); err != nil {
		return store.Claimed{}, false, err
	}
	for again := true; again && err == nil; {
		err = s.write(ctx, "claim a job", func(t *tx) error {
			// In a transaction of its own: it locks jobs before any tenant.
			if again, err = t.beginAnew(); err != nil || again {
				return err
			}
			c, ok, err = t.adopt(worker, ttl)
			if err != nil || ok {
				return err
			}
			c, ok, err = t.take(worker, ttl)
			return err
		})
	}
	if errors.Is(err, errPassed) {
		return store.Claimed{}, false, nil // others take all that comes
	}
	if err != nil || !ok {
		return store.Claimed{}, false, err
	}
	return c, true, nil
}

// aheadJobs finds active jobs whose leases were given in what is now the future.
const aheadJobs = `SELECT jobs.id FROM jobs WHERE ` + activeStates + ` AND jobs.leased_at > agentdock_now()`

// beginAnew lets leases that were given before the clock stepped back begin now.
// Whoever lives renews them; without it, nobody would take the jobs of the dead
// for as long as the step (L5).
func (t *tx) beginAnew() (begun bool, _ error) {
	n, err := t.exec(`UPDATE jobs SET lease_until = agentdock_now() + (lease_until - leased_at), leased_at = agentdock_now()
		WHERE id IN (` + aheadJobs + t.skipLocked("jobs") + `)`)
	return n > 0, err
}

// lostJob finds the active job whose lease ran out first.
const lostJob = `SELECT jobs.id FROM jobs WHERE ` + activeStates + ` AND jobs.lease_until <= agentdock_now()
	ORDER BY jobs.lease_until LIMIT 1`

// adopt claims the active job whose lease ran out first. One that is locked at
// this moment is being claimed by another, or renewed after all.
func (t *tx) adopt(worker string, ttl time.Duration) (store.Claimed, bool, error) {
	var fence int64
	job, err := readJobAnd(t.QueryRowContext(t.ctx, `
		UPDATE jobs SET fence = fence + 1, worker = $1, lease_until = agentdock_now() + $2, leased_at = agentdock_now()
		WHERE id = (`+lostJob+t.skipLocked("jobs")+`)
		RETURNING `+jobColumns+`, jobs.fence`, worker, ttl.Microseconds()), &fence)
	if ok, err := found(err); err != nil || !ok {
		return store.Claimed{}, false, err
	}
	return t.claimed(job, worker, fence, true)
}

// runnable finds the tenant whose turn it is. It joins each tenant with the
// first of its jobs that its whole quota allows, and asks whether what is left
// of the quota allows it now.
const runnable = `
	SELECT tenant_load.tenant_id, jobs.id
	FROM tenant_load
	JOIN tenants ON tenants.id = tenant_load.tenant_id
	JOIN jobs ON jobs.id = (SELECT head.id FROM jobs head
		WHERE head.tenant_id = tenant_load.tenant_id AND head.state = 'queued'
			AND (tenants.quota_milli_cpu = 0 OR head.milli_cpu <= tenants.quota_milli_cpu)
			AND (tenants.quota_memory_bytes = 0 OR head.memory_bytes <= tenants.quota_memory_bytes)
		ORDER BY head.created_at, head.id LIMIT 1)
	WHERE tenant_load.queued > 0 AND NOT tenants.disabled
		AND (tenants.quota_running = 0 OR tenant_load.running < tenants.quota_running)
		AND (tenants.quota_milli_cpu = 0 OR tenant_load.milli_cpu + jobs.milli_cpu <= tenants.quota_milli_cpu)
		AND (tenants.quota_memory_bytes = 0 OR tenant_load.memory_bytes + jobs.memory_bytes <= tenants.quota_memory_bytes)`

const inTurn = ` ORDER BY tenant_load.served_at, tenant_load.tenant_id LIMIT 1`

// errPassed says that a tenant's turn has passed while it was waited for.
var errPassed = errors.New("the turn of the tenant has passed")

// take claims a queued job. Tenants that others are at work on are passed over
// at first; if nothing else can run, their turn has come all the same.
func (t *tx) take(worker string, ttl time.Duration) (store.Claimed, bool, error) {
	var tenantID, jobID string
	dest := []any{&tenantID, &jobID}
	ok, err := t.scan(dest, runnable+inTurn+t.skipLocked("tenant_load"))
	if t.rowLock && err == nil {
		if !ok {
			ok, err = t.scan(dest, runnable+inTurn+t.lock("tenant_load"))
		}
		if err == nil && ok {
			// The tenant is ours now; what was found may be from before it was.
			if ok, err = t.scan(dest, runnable+` AND tenant_load.tenant_id = $1`, tenantID); err == nil && !ok {
				err = errPassed
			}
		}
	}
	if err != nil || !ok {
		return store.Claimed{}, false, err
	}
	return t.start(jobID, worker, ttl)
}

// start begins an attempt of a queued job whose tenant's counters are locked.
func (t *tx) start(jobID, worker string, ttl time.Duration) (store.Claimed, bool, error) {
	var fence int64
	job, err := readJobAnd(t.QueryRowContext(t.ctx, `
		UPDATE jobs SET state = 'starting', attempt = attempt + 1, node = '', fence = fence + 1, worker = $2,
			lease_until = agentdock_now() + $3, leased_at = agentdock_now(), started_at = agentdock_now()
		WHERE id = $1 AND state = 'queued'
		RETURNING `+jobColumns+`, jobs.fence`, jobID, worker, ttl.Microseconds()), &fence)
	if err != nil {
		return store.Claimed{}, false, err
	}
	if err := t.count(job.TenantID, run.Queued, run.Starting, sizeOf(job)); err != nil {
		return store.Claimed{}, false, err
	}
	if _, err := t.exec(`UPDATE tenant_load SET served_at = $2 WHERE tenant_id = $1`, job.TenantID, micros(job.StartedAt)); err != nil {
		return store.Claimed{}, false, err
	}
	return t.claimed(job, worker, fence, false)
}

func (t *tx) claimed(job run.Job, worker string, fence int64, adopted bool) (store.Claimed, bool, error) {
	owner, err := readTenant(t.QueryRowContext(t.ctx, `SELECT `+tenantColumns+` FROM tenants WHERE id = $1`, job.TenantID))
	if err != nil {
		return store.Claimed{}, false, err
	}
	t.changed = append(t.changed, job.ID)
	return store.Claimed{
		Lease:   store.Lease{JobID: job.ID, Worker: worker, Fence: fence},
		Job:     job,
		Tenant:  owner,
		Adopted: adopted,
	}, true, nil
}

// skipLocked is lock, but for rows that others have locked.
func (t *tx) skipLocked(table string) string {
	if !t.rowLock {
		return ""
	}
	return t.lock(table) + " SKIP LOCKED"
}
