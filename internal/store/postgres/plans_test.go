package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/testenv"
)

// seeded is how many jobs that have ended are on record.
const seeded = 200_000

// TestPlansFollowIndexes lets the server log the plan of every statement, on a
// record of many jobs, and looks for one that reads the table of jobs, or one
// that throws away what it has read.
func TestPlansFollowIndexes(t *testing.T) {
	p := testenv.StartPostgres(t, "session_preload_libraries=auto_explain", "auto_explain.log_min_duration=0",
		"auto_explain.log_analyze=on", "auto_explain.log_nested_statements=on")
	dsn := p.Database()
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	conn := connect(t, dsn)
	seed(t, conn)

	ctx := context.Background()
	for name, call := range map[string]func() error{
		"Claim": func() error {
			_, ok, err := s.Claim(ctx, "w", time.Nanosecond)
			if err == nil && !ok {
				t.Error("there is nothing to claim")
			}
			return err
		},
		"Jobs":               func() error { return page(s, store.JobQuery{TenantID: "t1"}) },
		"Jobs, rare state":   func() error { return page(s, store.JobQuery{TenantID: "t1", States: []run.State{run.Queued}}) },
		"Jobs, common state": func() error { return page(s, store.JobQuery{TenantID: "t1", States: []run.State{run.Succeeded}}) },
		"Jobs, states":       func() error { return page(s, store.JobQuery{TenantID: "t1", States: run.States()}) },
		"Jobs, common label": func() error { return page(s, store.JobQuery{TenantID: "t1", Labels: map[string]string{"app": "web"}}) },
		"Jobs, rare label":   func() error { return page(s, store.JobQuery{TenantID: "t1", Labels: map[string]string{"n": "77777"}}) },
		"Jobs, time": func() error {
			return page(s, store.JobQuery{TenantID: "t1", CreatedBefore: time.UnixMicro(seeded / 2)})
		},
		"Job":                func() error { _, err := s.Job(ctx, "t1", "j1"); return err },
		"Log":                func() error { _, err := s.Log(ctx, "t1", "j1", 0, 1000); return err },
		"Unsigned":           func() error { _, err := s.Unsigned(ctx, 10); return err },
		"Expired":            func() error { _, err := s.Expired(ctx, time.UnixMicro(1000), 10); return err },
		"Stats":              func() error { _, err := s.Stats(ctx); return err },
		"StaleUploads":       func() error { _, err := s.StaleUploads(ctx, time.Now(), 10); return err },
		"ActiveAttempts":     func() error { _, err := s.ActiveAttempts(ctx, []store.Attempt{{JobID: "j1", Attempt: 1}}); return err },
		"CreateJob":          func() error { return create(s) },
		"CancelJob":          func() error { _, err := s.CancelJob(ctx, "t1", "q1"); return err },
		"DeleteJob":          func() error { return s.DeleteJob(ctx, "j77") },
		"Jobs of a newcomer": func() error { return page(s, store.JobQuery{TenantID: "t9", States: []run.State{run.Failed}}) },
		"Claim with a lease": func() error { _, _, err := s.Claim(ctx, "w", time.Hour); return err },
		"Jobs, label + state": func() error {
			return page(s, store.JobQuery{TenantID: "t1", States: []run.State{run.Queued}, Labels: map[string]string{"app": "web"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			from := len(p.Log())
			if err := call(); err != nil {
				t.Fatal(err)
			}
			plans := logged(t, p, conn, from)
			if !strings.Contains(plans, "Index") {
				t.Errorf("no plan with an index was logged:\n%s", plans)
			}
			if bad := wasteful(plans); bad != "" {
				t.Errorf("%s in:\n%s", bad, plans)
			}
		})
	}
	// Negative control: without its indexes a list is found to be wasteful.
	if _, err := conn.Exec(ctx, `DROP INDEX jobs_list, jobs_state, jobs_queue`); err != nil {
		t.Fatal(err)
	}
	from := len(p.Log())
	if err := page(s, store.JobQuery{TenantID: "t1"}); err != nil {
		t.Fatal(err)
	}
	if plans := logged(t, p, conn, from); wasteful(plans) == "" {
		t.Errorf("nothing is found wrong without indexes:\n%s", plans)
	}
}

func page(s *postgres.Store, q store.JobQuery) error {
	q.Limit = 20
	_, err := s.Jobs(context.Background(), q)
	return err
}

func create(s *postgres.Store) error {
	n := store.NewJob{ID: "new", TenantID: "t1", IdempotencyKey: "key"}
	n.Spec.Labels = map[string]string{"a": "b"}
	_, _, err := s.CreateJob(context.Background(), n)
	return err
}

// logged waits for a mark in the log, behind which all before it is there.
func logged(t *testing.T, p *testenv.Postgres, conn *pgx.Conn, from int) string {
	t.Helper()
	mark := fmt.Sprintf("mark %d", time.Now().UnixNano())
	if _, err := conn.Exec(t.Context(), "SELECT '"+mark+"'"); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		if before, _, found := strings.Cut(p.Log()[from:], mark); found {
			return before
		}
		if time.Now().After(deadline) {
			t.Fatal("the mark is not in the log: is auto_explain loaded?")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var removed = regexp.MustCompile(`Rows Removed by (?:Filter|Join Filter|Index Recheck): (\d{4,})`)

// wasteful finds a reading of the table of jobs, or of a thousand rows for naught.
func wasteful(plans string) string {
	for _, table := range []string{"jobs", "job_labels", "job_log", "artifacts"} {
		if strings.Contains(plans, "Seq Scan on "+table) {
			return "all of " + table + " is read"
		}
	}
	return removed.FindString(plans)
}

// seed fills the record with jobs that have ended, of one large tenant and some
// small ones, and a few that have not.
func seed(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO tenants SELECT 't' || n, 'n', false, '{}', 0, 0, 0, 0, 0, 0, 0 FROM generate_series(1, 9) n`,
		`INSERT INTO tenant_load (tenant_id, queued, succeeded) SELECT 't' || n, CASE n WHEN 1 THEN 100 ELSE 0 END, 0 FROM generate_series(1, 9) n`,
		fmt.Sprintf(`INSERT INTO jobs (id, tenant_id, spec, milli_cpu, memory_bytes, request_digest, state, attempt, steps, outcome, usage, resolved, receipt, created_at, finished_at)
			SELECT 'j' || n, 't' || CASE WHEN n %% 10 < 8 THEN 1 ELSE n %% 10 END, '{}', 0, 0, '', 'succeeded', 1, '[]', '{}', '{}', '{}', 'r', n, n
			FROM generate_series(1, %d) n`, seeded),
		fmt.Sprintf(`INSERT INTO jobs (id, tenant_id, spec, milli_cpu, memory_bytes, request_digest, state, steps, usage, resolved, created_at)
			SELECT 'q' || n, 't1', '{}', 0, 0, '', 'queued', '[]', '{}', '{}', %d + n FROM generate_series(1, 100) n`, seeded),
		`INSERT INTO job_labels (job_id, tenant_id, name, value, created_at)
			SELECT id, tenant_id, 'app', 'web', created_at FROM jobs
			UNION ALL SELECT id, tenant_id, 'n', substr(id, 2), created_at FROM jobs WHERE id LIKE 'j%7'`,
		`INSERT INTO job_log SELECT id, 1, 1, 0, 'stdout', 0, 1, 'x', 0 FROM jobs WHERE id LIKE 'j%7'`,
		`INSERT INTO artifacts SELECT id, 'a', 1, 's', 'k' FROM jobs WHERE id LIKE 'j%7'`,
		`UPDATE tenant_load l SET artifact_bytes = (SELECT count(*) FROM artifacts a JOIN jobs j ON j.id = a.job_id WHERE j.tenant_id = l.tenant_id),
			succeeded = (SELECT count(*) FROM jobs j WHERE j.tenant_id = l.tenant_id AND state = 'succeeded')`,
		`VACUUM ANALYZE`,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}
