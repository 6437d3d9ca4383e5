// Package postgres keeps the record in PostgreSQL, for as many processes as
// there are (G1).
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlstore"
)

// Bounds of what waits for the database (G2).
const (
	connectTimeout   = 5 * time.Second
	statementTimeout = "8s"
	callTimeout      = 10 * time.Second
)

// maxConns is the size of the pool where the connection string sets none.
const maxConns = 16

// Advisory locks: numbers that mean something in this database only.
const (
	migrationLock = 7_238_001
	auditLock     = "SELECT pg_advisory_xact_lock(7238002)"
)

// Store is the record in a database.
type Store struct {
	*sqlstore.Store
	db    *sql.DB
	pool  *pgxpool.Pool
	hints *hints
}

var _ store.Store = (*Store)(nil)

// Open connects to the database that dsn names ("postgres://…", or key=value
// pairs) and brings its tables up to date. Any number of processes may do so
// at once.
func Open(ctx context.Context, dsn string) (*Store, error) {
	cfg, err := configure(dsn)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, cfg.ConnConfig); err != nil {
		return nil, err
	}
	// What bounds calls must not bound a migration, so it comes after that.
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = statementTimeout
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "30s"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fault.Wrap(code(err), err, "cannot connect to PostgreSQL")
	}
	s := &Store{db: stdlib.OpenDBFromPool(pool), pool: pool, hints: newHints(pool)}
	s.Store = sqlstore.New(sqlstore.Engine{
		Write: s.db, Read: s.db,
		RowLocks:  true,
		AuditLock: auditLock,
		Code:      code,
		Again:     again,
		Timeout:   callTimeout,
		Changed:   s.hints.changed,
	})
	return s, nil
}

func configure(dsn string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil { // its text has no password in it
		return nil, fault.Wrap(fault.Invalid, err, "cannot read the connection string of PostgreSQL")
	}
	if plain, _ := pgxpool.ParseConfig(""); plain == nil || cfg.MaxConns == plain.MaxConns {
		cfg.MaxConns = maxConns
	}
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "agentdock"
	}
	return cfg, nil
}

// Watch tells of changes, whichever process made them.
func (s *Store) Watch(_ context.Context, id string) (<-chan struct{}, func(), error) {
	changed, stop := s.hints.watch(id)
	return changed, stop, nil
}

// Ping reports whether the record can be read and written now: a replica cannot.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var readOnly bool
	err := s.db.QueryRowContext(ctx, `SELECT current_setting('transaction_read_only')::BOOLEAN FROM goose_db_version LIMIT 1`).Scan(&readOnly)
	if err == nil && readOnly {
		err = errors.New("the server takes no changes")
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot write the record")
	}
	return nil
}

// Close tells what is not told yet and closes the connections.
func (s *Store) Close() error {
	s.hints.close()
	err := s.db.Close()
	s.pool.Close()
	return err
}
