package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/agentdock/agentdock/api"
)

// CreateJob puts a job on record. A key that is not empty names the request: the
// same key brings back the same job, also from another process. Without one,
// the call makes one of its own, so that it can be repeated if its answer is lost.
func (c *Client) CreateJob(ctx context.Context, spec api.JobSpec, idempotencyKey string) (*api.Job, error) {
	if idempotencyKey == "" {
		idempotencyKey = rand.Text()
	}
	var job api.Job
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/v1/jobs", body: spec, header: http.Header{"Idempotency-Key": {idempotencyKey}},
	}, &job)
	return orNil(&job, err)
}

// Job returns a job as it stands.
func (c *Client) Job(ctx context.Context, id string) (*api.Job, error) {
	var job api.Job
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id)}, &job)
	return orNil(&job, err)
}

// CancelJob ends a job, now or soon.
func (c *Client) CancelJob(ctx context.Context, id string) (*api.Job, error) {
	var job api.Job
	err := c.do(ctx, call{method: http.MethodPost, path: jobPath(id) + "/cancel"}, &job)
	return orNil(&job, err)
}

// JobQuery says which jobs; its zero value is all of them.
type JobQuery struct {
	States        []api.JobState
	Labels        map[string]string
	CreatedAfter  time.Time
	CreatedBefore time.Time
	// PageSize is how many come with one request; 0 leaves it to the service.
	PageSize int
	// Cursor is the Next of the page before.
	Cursor string
}

func (q JobQuery) values() url.Values {
	v := selection(q.States, q.Labels, q.PageSize, q.Cursor)
	if !q.CreatedAfter.IsZero() {
		v.Set("created_after", q.CreatedAfter.UTC().Format(time.RFC3339Nano))
	}
	if !q.CreatedBefore.IsZero() {
		v.Set("created_before", q.CreatedBefore.UTC().Format(time.RFC3339Nano))
	}
	return v
}

// JobPage returns one page of jobs, newest first.
func (c *Client) JobPage(ctx context.Context, q JobQuery) (*api.JobList, error) {
	var list api.JobList
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/jobs", query: q.values()}, &list)
	return orNil(&list, err)
}

// Jobs goes through all jobs, newest first, and fetches pages as it needs them.
// It ends after an error.
func (c *Client) Jobs(ctx context.Context, q JobQuery) iter.Seq2[api.Job, error] {
	return pages(q.Cursor, func(cursor string) ([]api.Job, string, error) {
		q := q
		q.Cursor = cursor
		page, err := c.JobPage(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return page.Jobs, page.Next, nil
	})
}

func jobPath(id string) string { return "/v1/jobs/" + url.PathEscape(id) }

func orNil[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}
