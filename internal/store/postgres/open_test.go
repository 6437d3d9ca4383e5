package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestOpen(t *testing.T) {
	p := testenv.StartPostgres(t)

	t.Run("many at once", func(t *testing.T) {
		dsn := p.Database()
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				s, err := postgres.Open(t.Context(), dsn)
				if err != nil {
					t.Errorf("open: %v", err)
					return
				}
				if err := s.Ping(t.Context()); err != nil {
					t.Errorf("ping: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		}
		all.Wait()
	})

	t.Run("newer record", func(t *testing.T) {
		dsn := p.Database()
		s, err := postgres.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if _, err := connect(t, dsn).Exec(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`); err != nil {
			t.Fatal(err)
		}
		_, err = postgres.Open(t.Context(), dsn)
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "use the newer program") {
			t.Errorf("want a sentence that says what to do, got %v", err)
		}
	})

	t.Run("no such database", func(t *testing.T) {
		_, err := postgres.Open(t.Context(), p.DSN("absent"))
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("password is not told", func(t *testing.T) {
		for _, dsn := range []string{
			"postgres://u:s3cret@/d?host=" + t.TempDir(),
			"postgres://u:s3cret@host:port/d",
			"host=h password=s3cret port=x",
		} {
			_, err := postgres.Open(t.Context(), dsn)
			if err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v", err)
			}
		}
	})

	t.Run("replica takes no changes", func(t *testing.T) {
		dsn := p.Database()
		s, err := postgres.Open(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		// What matters to a session of a replica's is this setting.
		s, err = postgres.Open(t.Context(), dsn+"&default_transaction_read_only=on")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Ping(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("ping: %v", err)
		}
		if err := s.CreateTenant(t.Context(), tenant.Tenant{ID: "t"}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("create: %v", err)
		}
	})
}

// TestCloseWhileAway: a process can end when its database cannot be reached.
func TestCloseWhileAway(t *testing.T) {
	p := testenv.StartPostgres(t)
	s, err := postgres.Open(t.Context(), p.Database())
	if err != nil {
		t.Fatal(err)
	}
	_, stop, err := s.Watch(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := s.CreateTenant(t.Context(), tenant.Tenant{ID: "t"}); err != nil {
		t.Fatal(err)
	}
	p.Pause()
	defer p.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Ping(ctx); !fault.Is(err, fault.Unavailable) {
		t.Errorf("ping: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("close: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("close waits for a database that does not answer")
	}
}

// TestUploadsOfAnOlderRecordCount: a record from before uploads had a quota.
func TestUploadsOfAnOlderRecordCount(t *testing.T) {
	dsn := testenv.StartPostgres(t).Database()
	s, err := postgres.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	older := tenant.Tenant{ID: "t", Name: "t", Quota: tenant.Quota{ArtifactBytes: 10}}
	if err := errors.Join(s.CreateTenant(t.Context(), older),
		s.CreateUpload(t.Context(), store.Upload{ID: "u", TenantID: "t", Key: "u", Bytes: 7}), s.Close()); err != nil {
		t.Fatal(err)
	}
	old := connect(t, dsn)
	for _, statement := range []string{
		`ALTER TABLE tenants DROP COLUMN quota_upload_bytes`, `ALTER TABLE tenant_load DROP COLUMN upload_bytes`,
		// What came later.
		`DROP INDEX jobs_leased`, `ALTER TABLE jobs DROP COLUMN leased_at`, `ALTER TABLE jobs DROP COLUMN trace_parent`,
		`DROP INDEX sandboxes_idempotency`, `ALTER TABLE sandboxes DROP COLUMN idempotency_key`, `ALTER TABLE sandboxes DROP COLUMN request_digest`,
		`ALTER TABLE sandboxes DROP COLUMN paused`,
		`DELETE FROM goose_db_version WHERE version_id >= 3`,
	} {
		if _, err := old.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = postgres.Open(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Tenant(t.Context(), "t"); err != nil || got.Quota.UploadBytes != 10 {
		t.Errorf("the quota is %d, %v", got.Quota.UploadBytes, err)
	}
	if drift, err := s.Drift(t.Context()); err != nil || len(drift) > 0 {
		t.Errorf("%q, %v", drift, err)
	}
}
