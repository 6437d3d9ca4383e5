package sqlstore

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Bounds of a page.
const (
	defaultPage = 50
	largestPage = 1000
)

// Jobs lists jobs of a tenant, newest first (J4). A page ends with a place in
// the order, not with a count, so what is added meanwhile moves nothing.
func (s *Store) Jobs(ctx context.Context, q store.JobQuery) (page store.JobPage, err error) {
	if q.Limit <= 0 {
		q.Limit = defaultPage
	}
	q.Limit = min(q.Limit, largestPage)
	query, args, err := listQuery(q)
	if err != nil {
		return store.JobPage{}, err
	}
	err = s.read(ctx, "list jobs", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, query, args...)
		page.Jobs, err = all(rows, err, readJob)
		return err
	})
	if err != nil {
		return store.JobPage{}, err
	}
	if len(page.Jobs) > q.Limit { // one more was asked for, to see whether this is the last page
		page.Jobs = page.Jobs[:q.Limit]
		last := page.Jobs[q.Limit-1]
		page.Next = place{micros(last.CreatedAt), last.ID}.cursor()
	}
	return page, nil
}

// listColumns are jobColumns, with no steps: a page of jobs is not to carry all
// of theirs.
var listColumns = strings.Replace(jobColumns, "jobs.steps", "'[]' AS steps", 1)

// listQuery makes the statement for a page. Each state is asked for by itself
// and the answers are merged, so that each can follow an index in the order of
// the list: a few queued jobs are found as fast among a million that have ended.
func listQuery(q store.JobQuery) (string, []any, error) {
	c := conditions{}
	c.add("jobs.tenant_id = $", q.TenantID)
	order := "jobs.created_at DESC, jobs.id DESC"
	created, id, from := "jobs.created_at", "jobs.id", "jobs"
	for i, name := range slices.Sorted(maps.Keys(q.Labels)) {
		table := fmt.Sprintf("label%d", i)
		if i == 0 {
			// The label's index has the order of the list too: the database has
			// the choice which of the two to follow.
			created, id = table+".created_at", table+".job_id"
			order = created + " DESC, " + id + " DESC"
		}
		from += fmt.Sprintf(" JOIN job_labels %[1]s ON %[1]s.job_id = jobs.id", table)
		c.add(table+".tenant_id = $", q.TenantID)
		c.add(table+".name = $", name)
		c.add(table+".value = $", q.Labels[name])
		if !text(name) || !text(q.Labels[name]) {
			return "", nil, keepable(name, q.Labels[name])
		}
	}
	if !q.CreatedAfter.IsZero() {
		c.add(created+" >= $", micros(q.CreatedAfter))
	}
	if !q.CreatedBefore.IsZero() {
		c.add(created+" < $", micros(q.CreatedBefore))
	}
	if q.Cursor != "" {
		p, err := parseCursor(q.Cursor)
		if err != nil {
			return "", nil, err
		}
		c.add("("+created+", "+id+") < ($, $)", p.createdAt, p.id)
	}
	if err := keepable(q.TenantID); err != nil {
		return "", nil, err
	}
	sel := "SELECT " + listColumns + " FROM " + from + " WHERE " + c.where()
	limit := fmt.Sprintf(" LIMIT %d", q.Limit+1)
	if len(q.States) == 0 {
		return sel + " ORDER BY " + order + limit, c.args, nil
	}
	var parts []string
	for i, state := range slices.Compact(slices.Sorted(slices.Values(q.States))) {
		if !slices.Contains(run.States(), state) {
			return "", nil, fault.New(fault.Invalid, "there is no state %q", state)
		}
		parts = append(parts, fmt.Sprintf("SELECT * FROM (%s AND jobs.state = '%s' ORDER BY %s%s) AS part%d", sel, state, order, limit, i))
	}
	return strings.Join(parts, " UNION ALL ") + " ORDER BY created_at DESC, id DESC" + limit, c.args, nil
}

// conditions are parts of a WHERE clause with their arguments.
type conditions struct {
	texts []string
	args  []any
}

// add appends a condition in which each $ stands for the next argument.
func (c *conditions) add(text string, args ...any) {
	for _, a := range args {
		c.args = append(c.args, a)
		text = strings.Replace(text, "$", "\x00"+strconv.Itoa(len(c.args)), 1)
	}
	c.texts = append(c.texts, strings.ReplaceAll(text, "\x00", "$"))
}

func (c conditions) where() string { return strings.Join(c.texts, " AND ") }

// marks are n places for arguments.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("$, ", n), ", ") }

func limitTo(n int) string { return " LIMIT " + strconv.Itoa(n) }

// place is where a page ends.
type place struct {
	createdAt int64
	id        string
}

func (p place) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", p.createdAt, p.id))
}

func parseCursor(cursor string) (place, error) {
	invalid := fault.New(fault.Invalid, "the cursor is not one that a page ended with; begin again without it")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return place{}, invalid
	}
	at, id, ok := strings.Cut(string(raw), ".")
	createdAt, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || !text(id) {
		return place{}, invalid
	}
	return place{createdAt, id}, nil
}
