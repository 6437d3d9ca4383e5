package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// load is a tenant's row of counters, and the quotas beside it.
type load struct {
	disabled      bool
	queued        int
	sandboxes     int
	milliCPU      int64
	memoryBytes   int64
	artifactBytes int64
	uploadBytes   int64
	quota         struct {
		queued, sandboxes                 int
		milliCPU, memoryBytes, artifactBs int64
		uploadBs                          int64
	}
}

// lockLoad locks a tenant's counters. It comes before every lock of a job.
func (t *tx) lockLoad(tenantID string) (load, error) {
	var l load
	ok, err := t.scan([]any{&l.disabled, &l.queued, &l.sandboxes, &l.milliCPU, &l.memoryBytes, &l.artifactBytes, &l.uploadBytes,
		&l.quota.queued, &l.quota.sandboxes, &l.quota.milliCPU, &l.quota.memoryBytes, &l.quota.artifactBs, &l.quota.uploadBs}, `
		SELECT tenants.disabled, tenant_load.queued, tenant_load.sandboxes,
			tenant_load.milli_cpu, tenant_load.memory_bytes, tenant_load.artifact_bytes, tenant_load.upload_bytes,
			tenants.quota_queued, tenants.quota_sandboxes, tenants.quota_milli_cpu, tenants.quota_memory_bytes, tenants.quota_artifact_bytes,
			tenants.quota_upload_bytes
		FROM tenant_load JOIN tenants ON tenants.id = tenant_load.tenant_id
		WHERE tenant_load.tenant_id = $1`+t.lock("tenant_load"), tenantID)
	if err == nil && !ok {
		err = errNoTenant
	}
	return l, err
}

// lockLoadOf locks the counters of the tenant that has a job.
func (t *tx) lockLoadOf(jobID string) (load, error) {
	var tenantID string
	ok, err := t.scan([]any{&tenantID}, `SELECT tenant_id FROM jobs WHERE id = $1`, jobID)
	if err != nil {
		return load{}, err
	}
	if !ok {
		return load{}, errNoJob
	}
	return t.lockLoad(tenantID)
}

// count notes that a job of a size went from one state to another. The empty
// state is that of a job that is not on record.
func (t *tx) count(tenantID string, from, to run.State, size size) error {
	change := map[string]int64{}
	add := func(s run.State, n int64) {
		switch {
		case s.Active():
			change["running"] += n
			change["milli_cpu"] += n * size.milliCPU
			change["memory_bytes"] += n * size.memoryBytes
		case s != "":
			change[string(s)] += n
		}
	}
	add(from, -1)
	add(to, 1)
	_, err := t.exec(`UPDATE tenant_load SET queued = queued + $2, running = running + $3,
			milli_cpu = milli_cpu + $4, memory_bytes = memory_bytes + $5,
			succeeded = succeeded + $6, failed = failed + $7, cancelled = cancelled + $8
		WHERE tenant_id = $1`, tenantID, change["queued"], change["running"],
		change["milli_cpu"], change["memory_bytes"],
		change[string(run.Succeeded)], change[string(run.Failed)], change[string(run.StateCancelled)])
	return err
}

// size is what a job takes of the quotas while it is active.
type size struct{ milliCPU, memoryBytes int64 }

// fits says why what asks for so much can never run under these quotas.
func (l load) fits(what string, s size) error {
	switch {
	case l.quota.milliCPU > 0 && s.milliCPU > l.quota.milliCPU:
		return fault.New(fault.Invalid, "the %s asks for %d thousandths of a processor and the tenant's whole quota is %d; ask for less",
			what, s.milliCPU, l.quota.milliCPU)
	case l.quota.memoryBytes > 0 && s.memoryBytes > l.quota.memoryBytes:
		return fault.New(fault.Invalid, "the %s asks for %d bytes of memory and the tenant's whole quota is %d; ask for less",
			what, s.memoryBytes, l.quota.memoryBytes)
	}
	return nil
}

// Drift counts again and names each tenant whose counters are wrong: a defect,
// if there ever is one.
func (s *Store) Drift(ctx context.Context) ([]string, error) {
	var drift []string
	err := s.read(ctx, "count what is on record", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, `
			SELECT l.tenant_id, l.queued, l.running, l.milli_cpu, l.memory_bytes, l.artifact_bytes, l.succeeded, l.failed, l.cancelled, l.sandboxes, l.upload_bytes,
				coalesce(c.queued, 0), coalesce(c.running, 0),
				coalesce(c.milli_cpu, 0) + coalesce(b.milli_cpu, 0), coalesce(c.memory_bytes, 0) + coalesce(b.memory_bytes, 0),
				coalesce((SELECT sum(a.bytes) FROM artifacts a JOIN jobs o ON o.id = a.job_id WHERE o.tenant_id = l.tenant_id), 0),
				coalesce(c.succeeded, 0), coalesce(c.failed, 0), coalesce(c.cancelled, 0), coalesce(b.sandboxes, 0),
				coalesce((SELECT sum(u.bytes) FROM uploads u WHERE u.tenant_id = l.tenant_id), 0)
			FROM tenant_load l LEFT JOIN (
				SELECT tenant_id,
					sum(CASE WHEN state = 'queued' THEN 1 ELSE 0 END) AS queued,
					sum(CASE WHEN state IN ('starting', 'running') THEN 1 ELSE 0 END) AS running,
					sum(CASE WHEN state IN ('starting', 'running') THEN milli_cpu ELSE 0 END) AS milli_cpu,
					sum(CASE WHEN state IN ('starting', 'running') THEN memory_bytes ELSE 0 END) AS memory_bytes,
					sum(CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END) AS succeeded,
					sum(CASE WHEN state = 'failed' THEN 1 ELSE 0 END) AS failed,
					sum(CASE WHEN state = 'cancelled' THEN 1 ELSE 0 END) AS cancelled
				FROM jobs GROUP BY tenant_id) c ON c.tenant_id = l.tenant_id
			LEFT JOIN (
				SELECT tenant_id, count(*) AS sandboxes, sum(milli_cpu) AS milli_cpu, sum(memory_bytes) AS memory_bytes
				FROM sandboxes WHERE `+openStates+` GROUP BY tenant_id) b ON b.tenant_id = l.tenant_id`)
		drift, err = all(rows, err, func(row scanner) (string, error) {
			var tenantID string
			var kept, counted [10]int64
			dest := []any{&tenantID}
			for i := range kept {
				dest = append(dest, &kept[i])
			}
			for i := range counted {
				dest = append(dest, &counted[i])
			}
			if err := row.Scan(dest...); err != nil || kept == counted {
				return "", err
			}
			return fmt.Sprintf("tenant %s: kept %v, counted %v", tenantID, kept, counted), nil
		})
		return err
	})
	named := drift[:0]
	for _, d := range drift {
		if d != "" {
			named = append(named, d)
		}
	}
	return named, err
}
