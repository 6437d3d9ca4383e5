// Package sqlite keeps the record in a file, for one machine: everything that
// uses it is in one process (G1). A second process is refused.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// callTimeout bounds every call (G2).
	callTimeout = 15 * time.Second
	// readers is how many reads may be under way beside the one write.
	readers = 4
)

// Store is the record in a file.
type Store struct {
	*sqlstore.Store
	hints       sqlstore.Hints
	write, read *sql.DB
	lock        *os.File
}

var _ store.Store = (*Store)(nil)

// Open opens the record in a file, or makes it. The directory must exist.
func Open(ctx context.Context, path string) (_ *Store, err error) {
	s := &Store{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, err
	}
	// The files beside it get the mode of this one.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot open the record")
	}
	if err := f.Close(); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot open the record")
	}
	clock := &clock{}
	if s.write, err = connect(path, clock, "_txlock=immediate"); err != nil {
		return nil, err
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = connect(path, clock, "_pragma=query_only(1)"); err != nil {
		return nil, err
	}
	s.read.SetMaxOpenConns(readers)
	if err := prepare(ctx, s.write, clock); err != nil {
		return nil, err
	}
	s.Store = sqlstore.New(sqlstore.Engine{
		Write: s.write, Read: s.read,
		Code:    code,
		Again:   func(error) bool { return false }, // one writer at a time
		Timeout: callTimeout,
		Changed: s.hints.Tell,
	})
	return s, nil
}

// lockFile keeps other processes away for as long as this one lives.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot open the record")
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fault.Wrap(fault.Conflict, err,
			"cannot open the record in %s: another process has it; stop that one, or use PostgreSQL to have several", filepath.Dir(path))
	}
	return f, nil
}

// connector opens connections of a driver that has the functions we need.
type connector struct {
	d   *sqlite.Driver
	dsn string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.d }

func connect(path string, clock *clock, extra string) (*sql.DB, error) {
	d := &sqlite.Driver{}
	err := d.RegisterScalarFunction("agentdock_now", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		return clock.now(), nil
	})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot open the record")
	}
	return sql.OpenDB(connector{d, dsn(path, extra)}), nil
}

// dsn names the file to the driver, with how the record is to be kept.
func dsn(path, extra string) string {
	file := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_pragma=busy_timeout(2000)" +
		"&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)" +
		// What was acknowledged outlives a power cut.
		"&_pragma=synchronous(FULL)&" + extra}
	return file.String()
}

// prepare brings tables up to date, and takes over from the process before: its
// workers have ended with it, so their leases have too.
func prepare(ctx context.Context, db *sql.DB, clock *clock) error {
	clock.start(0)
	if err := migrate(ctx, db); err != nil {
		return err
	}
	var newest sql.NullInt64
	err := db.QueryRowContext(ctx, `SELECT max(created_at) FROM (SELECT created_at FROM jobs UNION ALL SELECT created_at FROM sandboxes)`).Scan(&newest)
	if err == nil {
		clock.start(newest.Int64)
		_, err = db.ExecContext(ctx, `UPDATE jobs SET lease_until = 0, leased_at = 0 WHERE state IN ('starting', 'running')`)
	}
	if err != nil {
		return fault.Wrap(code(err), err, "cannot open the record")
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot find the record's migrations")
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot read the record's migrations")
	}
	current, newest, err := p.GetVersions(ctx)
	if err != nil {
		return fault.Wrap(code(err), err, "cannot read the version of the record")
	}
	if current > newest {
		return fault.New(fault.Unsupported,
			"cannot open the record: it has version %d, and this program knows versions up to %d; use the newer program", current, newest)
	}
	if _, err := p.Up(ctx); err != nil {
		return fault.Wrap(code(err), err, "cannot bring the record up to date")
	}
	return nil
}

// Watch tells of changes that this process has made; there is no other.
func (s *Store) Watch(_ context.Context, id string) (<-chan struct{}, func(), error) {
	changed, stop := s.hints.Watch(id)
	return changed, stop, nil
}

// Ping writes, and takes it back.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tx, err := s.write.BeginTx(ctx, nil)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE tenant_load SET served_at = served_at WHERE tenant_id = ''`)
		_ = tx.Rollback()
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot write the record")
	}
	return nil
}

// Close ends calls that are under way and lets another process have the file.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} { // the writer is last: it folds the log into the file
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot close the record: %w", err)
	}
	return nil
}
