package sqlite_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/store/storetest"
)

func open(place string) (store.Store, error) { return sqlite.Open(context.Background(), place) }

func harness() storetest.Harness {
	return storetest.Harness{
		Place:  func(t *testing.T) string { return filepath.Join(t.TempDir(), "record ünï %20?.db") },
		Open:   open,
		Outage: holdWriteLock,
		// Nothing steps the clock itself back: it is the process's own.
		ClockBack: func(t *testing.T, place string, by time.Duration) {
			_, err := raw(t, place).ExecContext(t.Context(), `UPDATE jobs SET lease_until = lease_until + $1, leased_at = leased_at + $1`, by.Microseconds())
			if err != nil {
				t.Fatal(err)
			}
		},
		Tamper: tamper,
		Drift: func(s store.Store) ([]string, error) {
			return s.(*sqlite.Store).Drift(context.Background())
		},
		Child:   []string{"-test.run=^TestChild$"},
		Backlog: backlog,
	}
}

func TestContract(t *testing.T) { storetest.Run(t, harness()) }

// TestChild is the process that the suite kills.
func TestChild(t *testing.T) {
	if is, err := storetest.ChildMain(open); is {
		t.Fatal(err)
	}
}

// raw opens the file beside the store, as its owner could.
func raw(t *testing.T, place string) *sql.DB {
	t.Helper()
	file := url.URL{Scheme: "file", OmitHost: true, Path: place, RawQuery: "_pragma=busy_timeout(2000)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// holdWriteLock is as near as a file comes to going away: nobody can write it.
func holdWriteLock(t *testing.T, place string) (back func()) {
	t.Helper()
	conn, err := raw(t, place).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

func tamper(t *testing.T, place string, _ store.Store) (tries []error) {
	db := raw(t, place)
	for _, statement := range []string{
		"UPDATE audit SET result = 'ok'",
		"DELETE FROM audit",
		"REPLACE INTO audit (seq, at, tenant_id, key_id, action, object, result, remote) VALUES (1, 0, '', '', '', '', '', '')",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		tries = append(tries, err)
	}
	return tries
}

func BenchmarkRecord(b *testing.B) {
	s, err := open(filepath.Join(b.TempDir(), "record.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	storetest.Benchmark(b, s)
}
