package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/store/sqlstore"
)

// TestPlansFollowIndexes asks SQLite, which plans without looking at what is in
// the tables, how it would run what must not slow down with jobs that have
// ended. PostgreSQL is asked in its own package.
func TestPlansFollowIndexes(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	s, err := sqlite.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })

	statements := map[string]string{
		"the tenant whose turn it is": sqlstore.NextTenant,
		"a lost job":                  sqlstore.LostJob,
		"leases of the future":        sqlstore.AheadJobs,
		"unsigned":                    sqlstore.Unsigned,
		"expired":                     sqlstore.Expired,
		"stale uploads":               sqlstore.Stale,
	}
	for name, q := range map[string]store.JobQuery{
		"list":             {},
		"list, state":      {States: []run.State{run.Queued}},
		"list, states":     {States: run.States()},
		"list, label":      {Labels: map[string]string{"a": "b"}},
		"list, both":       {Labels: map[string]string{"a": "b"}, States: []run.State{run.Failed}},
		"list, time":       {CreatedAfter: time.Unix(1, 0), CreatedBefore: time.Unix(2, 0)},
		"list, next page":  {Cursor: "MTIzNDU2Nzg5LmpvYg"},
		"list, two labels": {Labels: map[string]string{"a": "b", "c": "d"}, CreatedAfter: time.Unix(1, 0)},
	} {
		q.TenantID, q.Limit = "t", 20
		statement, _, err := sqlstore.ListQuery(q)
		if err != nil {
			t.Fatal(err)
		}
		statements[name] = statement
	}
	for name, statement := range statements {
		if bad, plan := wasteful(t, db, statement); bad != "" {
			t.Errorf("%s: %s, in\n%s\n%s", name, bad, plan, statement)
		}
	}
	// Negative control: without the indexes there is something to be found.
	for _, index := range []string{"tenant_load_turn", "jobs_list", "jobs_state", "jobs_queue", "jobs_lease", "jobs_leased", "jobs_ended",
		"jobs_unsigned", "jobs_idempotency", "job_labels_find", "uploads_age"} {
		if _, err := db.ExecContext(t.Context(), "DROP INDEX "+index); err != nil {
			t.Fatal(err)
		}
	}
	for name, statement := range statements {
		if bad, plan := wasteful(t, db, statement); bad == "" {
			t.Errorf("%s: nothing is found wrong without indexes, in\n%s", name, plan)
		}
	}
}

// wasteful finds the line of a plan that reads a whole table or sorts one.
func wasteful(t *testing.T, db *sql.DB, statement string) (bad, plan string) {
	t.Helper()
	lines := explain(t, db, strings.ReplaceAll(statement, "agentdock_now()", "1"))
	for _, line := range lines {
		scan := strings.HasPrefix(line, "SCAN ") && !strings.Contains(line, "part") && !partialIndex(line)
		if scan || strings.Contains(line, "AUTOMATIC") || strings.Contains(line, "TEMP B-TREE") && !merged(statement) {
			return line, strings.Join(lines, "\n")
		}
	}
	return "", strings.Join(lines, "\n")
}

// partialIndex tells the reading of an index that has only what is wanted, in
// the order that is wanted.
func partialIndex(line string) bool {
	for _, index := range []string{"tenant_load_turn", "jobs_unsigned"} {
		if strings.Contains(line, "USING INDEX "+index) {
			return true
		}
	}
	return false
}

// merged says that a statement sorts pages of several states, which is little.
func merged(statement string) bool { return strings.Contains(statement, "AS part") }

func explain(t *testing.T, db *sql.DB, statement string) (plan []string) {
	t.Helper()
	args := make([]any, strings.Count(statement, "$"))
	for i := range args {
		args[i] = 1
	}
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%v in %s", err, statement)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
	}
	if err := rows.Err(); err != nil || len(plan) == 0 {
		t.Fatalf("the plan has %d lines, %v", len(plan), err)
	}
	return plan
}
