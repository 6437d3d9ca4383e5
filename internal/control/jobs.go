package control

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// wakeTime bounds the wait for a queue that is away: the job is on record, and
// a worker finds it without a hint too.
const wakeTime = time.Second

// Submission is a job that a caller asks for.
type Submission struct {
	// Spec is as the caller wrote it, without defaults.
	Spec run.JobSpec
	// IdempotencyKey may be empty.
	IdempotencyKey string
}

// Submit puts a job on record and wakes a worker. created is false when the
// idempotency key has brought back a job that was made before.
func (c *Control) Submit(ctx context.Context, caller Caller, s Submission) (job run.Job, created bool, err error) {
	defer func() {
		if created || err != nil {
			c.audit(ctx, caller, "job.create", job.ID, err)
		}
	}()
	if err := CheckIdempotencyKey(s.IdempotencyKey); err != nil {
		return run.Job{}, false, err
	}
	// The digest is of what was asked for: other defaults tomorrow make no
	// other request.
	asked, err := json.Marshal(s.Spec)
	if err != nil {
		return run.Job{}, false, fault.Wrap(fault.Invalid, err, "cannot take the job")
	}
	spec, err := c.complete(s.Spec, caller.Tenant)
	if err != nil {
		return run.Job{}, false, err
	}
	id, err := newID()
	if err != nil {
		return run.Job{}, false, err
	}
	job, created, err = c.record.CreateJob(ctx, store.NewJob{
		ID: id, TenantID: caller.Tenant.ID, Spec: spec,
		IdempotencyKey: s.IdempotencyKey, RequestDigest: sha256.Sum256(asked),
	})
	if err != nil {
		return run.Job{}, false, err
	}
	if created {
		c.wake(ctx, job.ID)
	}
	return job, created, nil
}

func (c *Control) wake(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeTime)
	defer cancel()
	if err := c.queue.Wake(ctx, id); err != nil {
		c.log.WarnContext(ctx, "cannot wake a worker; one will find the job when it looks", slog.String("job", id), slog.Any("error", err))
	}
}

// CheckIdempotencyKey says what is wrong with a key, which may be empty.
func CheckIdempotencyKey(key string) error {
	if len(key) > 255 {
		return fault.New(fault.Invalid, "the idempotency key is longer than 255 characters")
	}
	for _, b := range []byte(key) {
		if b <= ' ' || b > '~' {
			return fault.New(fault.Invalid, "the idempotency key holds something else than printable ASCII")
		}
	}
	return nil
}

// Job returns a job of the caller's tenant.
func (c *Control) Job(ctx context.Context, caller Caller, id string) (run.Job, error) {
	if !isID(id) {
		return run.Job{}, noSuch("job", id)
	}
	job, err := c.record.Job(ctx, caller.Tenant.ID, id)
	return job, orNoSuch(err, "job", id)
}

// MaxPage is how many entries a page of a list has at most, and DefaultPage how
// many when the caller does not say.
const (
	MaxPage     = 500
	DefaultPage = 50
)

// PageSize is how many entries a caller who asked for so many gets.
func PageSize(asked int) (int, error) {
	switch {
	case asked == 0:
		return DefaultPage, nil
	case asked < 0 || asked > MaxPage:
		return 0, fault.New(fault.Invalid, "a limit of %d is not between 1 and %d", asked, MaxPage)
	}
	return asked, nil
}

// Jobs lists jobs of the caller's tenant, newest first.
func (c *Control) Jobs(ctx context.Context, caller Caller, q store.JobQuery) (store.JobPage, error) {
	q.TenantID = caller.Tenant.ID
	var err error
	if q.Limit, err = PageSize(q.Limit); err != nil {
		return store.JobPage{}, err
	}
	for _, s := range q.States {
		if !isState(s) {
			return store.JobPage{}, fault.New(fault.Invalid, "there is no state %q", clip(string(s)))
		}
	}
	if err := CheckLabels(q.Labels); err != nil {
		return store.JobPage{}, err
	}
	return c.record.Jobs(ctx, q)
}

func isState(s run.State) bool {
	for _, known := range run.States() {
		if s == known {
			return true
		}
	}
	return false
}

// Cancel ends a job, now or soon, and returns it as it is afterwards.
func (c *Control) Cancel(ctx context.Context, caller Caller, id string) (job run.Job, err error) {
	defer func() { c.audit(ctx, caller, "job.cancel", clip(id), err) }()
	if !isID(id) {
		return run.Job{}, noSuch("job", id)
	}
	job, err = c.record.CancelJob(ctx, caller.Tenant.ID, id)
	return job, orNoSuch(err, "job", id)
}

// Artifacts lists what a job left.
func (c *Control) Artifacts(ctx context.Context, caller Caller, id string) ([]run.Artifact, error) {
	if !isID(id) {
		return nil, noSuch("job", id)
	}
	all, err := c.record.Artifacts(ctx, caller.Tenant.ID, id)
	return all, orNoSuch(err, "job", id)
}

// OpenArtifact opens what a job left under a path. Whoever reads it knows from
// the size and digest on record whether it is whole.
func (c *Control) OpenArtifact(ctx context.Context, caller Caller, id, path string) (run.Artifact, io.ReadCloser, error) {
	all, err := c.Artifacts(ctx, caller, id)
	if err != nil {
		return run.Artifact{}, nil, err
	}
	for _, a := range all {
		if a.Path != path {
			continue
		}
		body, info, err := c.blobs.Open(ctx, a.Key)
		if err != nil {
			if fault.Is(err, fault.NotFound) {
				err = fault.Wrap(fault.Gone, err, "the bytes of artifact %q are not kept any more", clip(path))
			}
			return run.Artifact{}, nil, err
		}
		if info.Bytes != a.Bytes {
			body.Close()
			return run.Artifact{}, nil, fault.New(fault.Internal, "artifact %q is %d bytes on record and %d where it is kept", clip(path), a.Bytes, info.Bytes)
		}
		return a, body, nil
	}
	return run.Artifact{}, nil, noSuch("artifact", path)
}

// Receipt returns the signed statement of what a job did.
func (c *Control) Receipt(ctx context.Context, caller Caller, id string) ([]byte, error) {
	if !isID(id) {
		return nil, noSuch("job", id)
	}
	receipt, err := c.record.Receipt(ctx, caller.Tenant.ID, id)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "there is no receipt of a job %q; a job has one soon after it has ended", clip(id))
	}
	return receipt, err
}
