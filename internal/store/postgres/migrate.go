package postgres

import (
	"context"
	"embed"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/agentdock/agentdock/internal/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the tables up to date, while other processes that want the
// same wait. They look every second, for as long as five minutes.
func migrate(ctx context.Context, cfg *pgx.ConnConfig) error {
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot find the record's migrations")
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(migrationLock), lock.WithLockTimeout(1, 300))
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot make a lock for migrations")
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot read the record's migrations")
	}
	if err := db.PingContext(ctx); err != nil {
		return fault.Wrap(code(err), err, "cannot connect to PostgreSQL")
	}
	if _, err := p.Up(ctx); err != nil {
		return fault.Wrap(code(err), err, "cannot bring the record up to date")
	}
	current, newest, err := p.GetVersions(ctx)
	if err != nil {
		return fault.Wrap(code(err), err, "cannot read the version of the record")
	}
	if current > newest {
		return fault.New(fault.Unsupported,
			"cannot open the record: it has version %d, and this program knows versions up to %d; use the newer program", current, newest)
	}
	return nil
}
