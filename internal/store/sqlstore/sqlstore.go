// Package sqlstore is the record in SQL: the statements that PostgreSQL and
// SQLite have in common, written once, so that both keep the same promises.
// The adapters beside it open a database, make its tables, tell other processes
// of changes and say what the database's errors mean.
//
// # How it keeps them
//
// Each tenant has a row in tenant_load with counters of what it has on record
// and uses. Whoever moves a job, or changes what is counted in another way,
// locks that row first and the job's row second; the counters change in the
// same transaction. A queued job can therefore not move under a Claim that has
// the row of its tenant, quotas cannot be passed by two together, and no two
// transactions wait for each other in a circle.
//
// What a lease allows is guarded by one condition, on the job's row: this
// fence, and an active state (lease.go).
//
// Times are whole microseconds since 1970. Now is agentdock_now(), a function
// that each adapter gives its database: leases are compared with no other
// clock (L5).
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

// Engine is a database with the tables of the record.
type Engine struct {
	// Write is for transactions, Read for single statements that only read.
	// They may be the same.
	Write, Read *sql.DB
	// RowLocks says that rows are locked one by one. Without them the engine
	// lets one transaction write at a time, from its beginning.
	RowLocks bool
	// AuditLock, if set, makes transactions that execute it run one after the
	// other, so that sequence numbers appear in their order.
	AuditLock string
	// Code says what an error of the database means to callers.
	Code func(error) fault.Code
	// Again reports whether a transaction failed for no reason but others that
	// ran beside it, and had no effect.
	Again func(error) bool
	// Timeout bounds every call.
	Timeout time.Duration
	// Changed is told of each job that has changed, after it has.
	Changed func(jobID string)
}

// Store implements all of store.Store but Watch, Ping and Close, which are the
// adapters'.
type Store struct{ e Engine }

// New returns the record in that database.
func New(e Engine) *Store { return &Store{e: e} }

// tries bounds how often a transaction is begun again.
const tries = 8

// tx is a transaction and what it has changed.
type tx struct {
	*sql.Tx
	ctx     context.Context
	rowLock bool
	changed []string
}

// write runs work in a transaction: all of it happens, or nothing. doing
// begins the message of its error.
func (s *Store) write(ctx context.Context, doing string, work func(*tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.e.Timeout)
	defer cancel()
	var err error
	for range tries {
		var t *tx
		t, err = s.once(ctx, work)
		if err == nil {
			for _, id := range t.changed {
				s.e.Changed(id)
			}
			return nil
		}
		if !errors.Is(err, errPassed) && !s.e.Again(err) {
			break
		}
	}
	return s.fail(ctx, err, doing)
}

func (s *Store) once(ctx context.Context, work func(*tx) error) (*tx, error) {
	begun, err := s.e.Write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	t := &tx{Tx: begun, ctx: ctx, rowLock: s.e.RowLocks}
	if err := work(t); err != nil {
		_ = begun.Rollback()
		return nil, err
	}
	return t, begun.Commit()
}

// read runs work, whose statements see the record one after the other.
func (s *Store) read(ctx context.Context, doing string, work func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.e.Timeout)
	defer cancel()
	if err := work(ctx, s.e.Read); err != nil {
		return s.fail(ctx, err, doing)
	}
	return nil
}

// fail gives an error its code. One that has a code stays as it is.
func (s *Store) fail(ctx context.Context, err error, doing string) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) {
		err = ctx.Err() // which ended the transaction, and says more
	}
	code := fault.Unavailable
	if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
		code = s.e.Code(err)
	}
	return fault.Wrap(code, err, "cannot %s", doing)
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(statement string, args ...any) (int64, error) {
	r, err := t.ExecContext(t.ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// scan reads the first row of a query; there is none if ok is false.
func (t *tx) scan(dest []any, query string, args ...any) (ok bool, _ error) {
	return found(t.QueryRowContext(t.ctx, query, args...).Scan(dest...))
}

func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// lock is what a query of t ends with to lock the rows it finds in a table.
func (t *tx) lock(table string) string {
	if !t.rowLock {
		return ""
	}
	return " FOR UPDATE OF " + table
}

// all reads every row of a query with one function.
func all[T any](rows *sql.Rows, err error, read func(scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []T
	for rows.Next() {
		v, err := read(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// keepable refuses text that not every database keeps as it is.
func keepable(texts ...string) error {
	for _, t := range texts {
		if !text(t) {
			return fault.New(fault.Invalid, "cannot keep text that is not UTF-8 or has a zero byte in it")
		}
	}
	return nil
}

func text(t string) bool {
	if !utf8.ValidString(t) {
		return false
	}
	for i := range len(t) {
		if t[i] == 0 {
			return false
		}
	}
	return true
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// optional is a time that may be missing: zero in Go, NULL in the database.
func optional(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: micros(t), Valid: !t.IsZero()}
}

func fromOptional(us sql.NullInt64) time.Time {
	if !us.Valid {
		return time.Time{}
	}
	return fromMicros(us.Int64)
}

var errNoJob = fault.New(fault.NotFound, "there is no such job")

// one asks that a statement found what it was about.
func one(n int64, err error, otherwise error) error {
	if err == nil && n == 0 {
		return otherwise
	}
	return err
}

var _ interface {
	store.Leases
	store.Sandboxes
	store.Housekeeping
	store.Tenants
	store.Audit
	store.Uploads
} = (*Store)(nil)
