package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/store/storetest"
	"github.com/agentdock/agentdock/internal/testenv"
)

func open(dsn string) (store.Store, error) { return postgres.Open(context.Background(), dsn) }

func harness(p *testenv.Postgres) storetest.Harness {
	return storetest.Harness{
		Place:  func(*testing.T) string { return p.Database() },
		Open:   open,
		Shared: true,
		Outage: func(_ *testing.T, dsn string) func() { return p.Cut(dsn) },
		ClockBack: func(t *testing.T, dsn string, by time.Duration) {
			_, err := connect(t, dsn).Exec(t.Context(), fmt.Sprintf(`CREATE OR REPLACE FUNCTION agentdock_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE
				AS $$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::BIGINT - %d $$`, by.Microseconds()))
			if err != nil {
				t.Fatal(err)
			}
		},
		Tamper: tamper,
		Drift: func(s store.Store) ([]string, error) {
			return s.(*postgres.Store).Drift(context.Background())
		},
		Child: []string{"-test.run=^TestChild$"},
	}
}

func TestContract(t *testing.T) { storetest.Run(t, harness(testenv.StartPostgres(t))) }

// TestServerAway runs the suite's outage with every way in which a whole
// server can be away.
func TestServerAway(t *testing.T) {
	for name, outage := range map[string]func(*testenv.Postgres) (back func()){
		"stopped": func(p *testenv.Postgres) func() { p.Stop(); return p.Start },
		"crashed": func(p *testenv.Postgres) func() { p.Crash(); return p.Start },
		"paused":  func(p *testenv.Postgres) func() { p.Pause(); return p.Resume },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testenv.StartPostgres(t)
			h := harness(p)
			h.Outage = func(*testing.T, string) func() { return outage(p) }
			storetest.RunCase(t, h, "G2_outage")
		})
	}
}

// TestChild is the process that the suite kills.
func TestChild(t *testing.T) {
	if is, err := storetest.ChildMain(open); is {
		t.Fatal(err)
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// tamper tries as the owner of the tables, who can take rights back.
func tamper(t *testing.T, dsn string, _ store.Store) (tries []error) {
	conn := connect(t, dsn)
	exec := func(statement string) {
		_, err := conn.Exec(t.Context(), statement)
		tries = append(tries, err)
	}
	statements := []string{"UPDATE audit SET result = 'ok'", "DELETE FROM audit", "TRUNCATE audit",
		"INSERT INTO audit (seq, at, tenant_id, key_id, action, object, result, remote) VALUES (1, 0, '', '', '', '', '', '')"}
	for _, s := range statements {
		exec(s)
	}
	if _, err := conn.Exec(t.Context(), "GRANT ALL ON audit TO CURRENT_USER"); err != nil {
		t.Error(err)
	}
	for _, s := range statements {
		exec(s)
	}
	return tries
}

// BenchmarkRecord is with commits synced to the disk, as in production.
func BenchmarkRecord(b *testing.B) {
	s, err := open(testenv.StartPostgres(b, "fsync=on", "full_page_writes=on").Database())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	storetest.Benchmark(b, s)
}
