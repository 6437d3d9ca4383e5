package postgres

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agentdock/agentdock/internal/fault"
)

// code says what an error of the database means to callers, by its SQLSTATE.
func code(err error) fault.Code {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if strings.HasPrefix(err.Error(), "sql: Scan error") {
			return fault.Internal
		}
		return fault.Unavailable // the connection: refused, broken, closed
	}
	switch e.Code[:2] {
	case "22", "54": // data exception, program limit
		return fault.Invalid
	case "08", "25", "28", "3D", "40", "53", "55", "57", "58":
		// connection, transaction state (a replica), authorization, no such
		// database, rollback, resources, locks, shutdown, the server's disk
		return fault.Unavailable
	}
	return fault.Internal
}

// again reports whether a transaction may be begun again: it lost a race, its
// plan was made for tables that have changed, or it was never sent.
func again(err error) bool {
	if pgconn.SafeToRetry(err) {
		return true
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "40001", "40P01": // serialization failure, deadlock
		return true
	case "0A000":
		return strings.Contains(e.Message, "cached plan")
	}
	return false
}
