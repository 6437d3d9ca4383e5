package sqlstore

import "github.com/agentdock/agentdock/internal/store"

// Statements that must follow an index, as SQLite gets them.
var (
	NextTenant = runnable + inTurn
	LostJob    = lostJob
	AheadJobs  = aheadJobs
	ListQuery  = func(q store.JobQuery) (string, []any, error) { return listQuery(q) }
	Unsigned   = unsigned
	Expired    = expired
	Stale      = staleUploads
)
