package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
)

func mustOpen(t *testing.T, place string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestSecondProcessIsRefused(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	first := mustOpen(t, place)
	_, err := sqlite.Open(t.Context(), place)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "another process has it") {
		t.Errorf("want a sentence that says so, got %v", err)
	}
	if err := first.Ping(t.Context()); err != nil {
		t.Errorf("the first is disturbed: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, place)
}

func TestNewerRecordIsRefused(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	mustOpen(t, place).Close()
	if _, err := raw(t, place).Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)`); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), place)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "use the newer program") {
		t.Errorf("want a sentence that says what to do, got %v", err)
	}
}

func TestNobodyElseCanReadTheRecord(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, filepath.Join(dir, "record.db"))
	if err := s.AppendAudit(t.Context(), store.AuditEntry{Action: "x"}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, %v", f.Name(), info.Mode(), err)
		}
	}
}

// TestLeasesEndWithTheProcess: nobody has to wait for the leases of workers
// that cannot live any more.
func TestLeasesEndWithTheProcess(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	ctx := context.Background()
	s := mustOpen(t, place)
	if err := s.CreateTenant(ctx, tenant.Tenant{ID: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateJob(ctx, store.NewJob{ID: "j", TenantID: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Claim(ctx, "w", time.Hour); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, ok, err := mustOpen(t, place).Claim(ctx, "w", time.Hour)
	if err != nil || !ok || !got.Adopted || got.Job.State != run.Starting {
		t.Errorf("claimed %v, adopted %v, %s, %v", ok, got.Adopted, got.Job.State, err)
	}
}

// TestWallClockSetBack: the newest job stays the newest.
func TestWallClockSetBack(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	s := mustOpen(t, place)
	if err := s.CreateTenant(t.Context(), tenant.Tenant{ID: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateJob(t.Context(), store.NewJob{ID: "first", TenantID: "t"}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	// The first was made tomorrow, as the clock has it now.
	if _, err := raw(t, place).Exec(`UPDATE jobs SET created_at = created_at + 86400000000`); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, place)
	if _, _, err := s.CreateJob(t.Context(), store.NewJob{ID: "second", TenantID: "t"}); err != nil {
		t.Fatal(err)
	}
	page, err := s.Jobs(t.Context(), store.JobQuery{TenantID: "t"})
	if err != nil || len(page.Jobs) != 2 || page.Jobs[0].ID != "second" {
		t.Errorf("the list is %v, %v", page.Jobs, err)
	}
}

// TestUploadsOfAnOlderRecordCount: a record from before uploads had a quota.
func TestUploadsOfAnOlderRecordCount(t *testing.T) {
	place := filepath.Join(t.TempDir(), "record.db")
	s := mustOpen(t, place)
	older := tenant.Tenant{ID: "t", Name: "t", Quota: tenant.Quota{ArtifactBytes: 10}}
	if err := errors.Join(s.CreateTenant(t.Context(), older),
		s.CreateUpload(t.Context(), store.Upload{ID: "u", TenantID: "t", Key: "u", Bytes: 7}), s.Close()); err != nil {
		t.Fatal(err)
	}
	old := raw(t, place)
	for _, statement := range []string{
		`ALTER TABLE tenants DROP COLUMN quota_upload_bytes`, `ALTER TABLE tenant_load DROP COLUMN upload_bytes`,
		// What came later.
		`DROP INDEX jobs_leased`, `ALTER TABLE jobs DROP COLUMN leased_at`, `ALTER TABLE jobs DROP COLUMN trace_parent`,
		`DROP INDEX sandboxes_idempotency`, `ALTER TABLE sandboxes DROP COLUMN idempotency_key`, `ALTER TABLE sandboxes DROP COLUMN request_digest`,
		`ALTER TABLE sandboxes DROP COLUMN paused`,
		`DELETE FROM goose_db_version WHERE version_id >= 3`,
	} {
		if _, err := old.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, place)
	if got, err := s.Tenant(t.Context(), "t"); err != nil || got.Quota.UploadBytes != 10 {
		t.Errorf("the quota is %d, %v", got.Quota.UploadBytes, err)
	}
	if drift, err := s.Drift(t.Context()); err != nil || len(drift) > 0 {
		t.Errorf("%q, %v", drift, err)
	}
}
