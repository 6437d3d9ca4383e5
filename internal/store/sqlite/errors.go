package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/agentdock/agentdock/internal/fault"
)

// code says what an error of the database means to callers.
func code(err error) fault.Code {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
			return fault.Unavailable
		}
		return fault.Internal
	}
	switch e.Code() & 0xff { // the rest says where it happened
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL:
		return fault.Unavailable
	case sqlite3.SQLITE_TOOBIG:
		return fault.Invalid
	}
	return fault.Internal
}
