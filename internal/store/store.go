// Package store is the port to the durable record: jobs, their logs and
// artifacts, tenants and keys, who did what. It is the only truth about a job;
// queues carry hints and sandboxes are looked up by what is written here.
//
// Every numbered sentence has a case in storetest that runs against every
// adapter.
//
// # Jobs
//
//   - J1. CreateJob puts a job on record as queued, or, when its tenant has used
//     the idempotency key before, returns the job that was made then. The same
//     key with another request fails with Conflict. Concurrent calls with one
//     key make one job. A job whose source is an upload fails with NotFound
//     unless that upload is its tenant's and complete.
//   - J2. CreateJob fails with Exhausted when the tenant has as many queued jobs
//     as its quota allows; concurrent calls cannot pass it together. It fails
//     with Invalid for a job that asks for more processors or memory than the
//     whole quota, and with Denied when the tenant is disabled.
//   - J3. A job, its log and its artifacts can be read by their tenant only. To
//     another tenant they are NotFound, exactly as if they did not exist.
//   - J4. Jobs returns a tenant's jobs, newest first, page by page. A page holds
//     no job twice and misses none that existed when the first page was read,
//     whatever is added meanwhile.
//   - J5. CancelJob ends a queued job as cancelled at once, marks an active one,
//     and leaves a terminal one alone; it returns the job as it is afterwards.
//   - J6. Moves that are not in run.Moves are refused with Conflict and change
//     nothing.
//
// # Leases
//
//   - L1. Claim gives one job to one worker: an active job whose lease has
//     expired, or else a queued one, which becomes starting. No job is given to
//     two workers that hold it at the same time, however many call at once.
//   - L2. Each claim raises the job's fence. Every method that takes a Lease
//     fails with Gone, and changes nothing, when the job has another fence, or
//     has ended. An expired lease that nobody has taken yet still works.
//   - L3. Claim is fair between tenants: among those with a queued job and quota
//     to run it, the one that was served longest ago comes first; within a
//     tenant the oldest job does. A tenant's backlog, however long, does not
//     delay another's first job.
//   - L4. Claim never starts a job that would take its tenant over its quota of
//     running jobs, processors or memory, nor one of a disabled tenant. A job
//     that asks for more than a quota that was lowered since holds up no other.
//   - L5. The time of leases is the store's own: a worker with a wrong clock
//     neither loses nor keeps one for it. When the store's clock steps back, a
//     lease lasts for its length from the next Claim on, and no longer.
//   - L6. A new attempt begins when a queued job is claimed; a claim of an active
//     job goes on with the attempt that is there.
//   - L7. StartStep makes a starting job running. It is on record before the
//     command may start; the same step again changes nothing.
//   - L8. AppendLog gives each entry the next Seq. Bytes that are on record
//     already, by attempt, step and offset, are dropped, so an append may be
//     repeated. One that would leave a hole fails with Conflict.
//   - L9. Finish makes the job terminal with its outcome, once. What was appended
//     before is on record before it. An attempt that was lost counts as such,
//     whether another follows (L10) or not.
//   - L10. Requeue makes a job queued again, without its steps and artifacts; its
//     log stays. A job that a caller wants to end becomes cancelled instead.
//   - L11. AddArtifact fails with Exhausted when the tenant would keep more bytes
//     than its quota.
//
// # Live sandboxes
//
//   - S1. CreateSandbox puts a sandbox on record as creating. It fails with
//     Exhausted when the tenant has as many as its quota allows, or when their
//     limits and those of its active jobs would pass it; concurrent calls cannot
//     pass it together. It fails with Invalid for one that asks for more than
//     the whole quota, with Denied when the tenant is disabled, and with Conflict
//     when the id is taken.
//   - S2. A sandbox can be read, listed and extended by its tenant only. To
//     another tenant it is NotFound, exactly as if it did not exist.
//   - S3. Sandboxes returns a tenant's sandboxes, newest first, page by page, as
//     Jobs does.
//   - S4. A sandbox moves as run.SandboxState.CanMove says; other moves fail with
//     Conflict, or with Gone if its end has begun, and change nothing. The first
//     outcome stays, and with it the access token goes.
//   - S5. An extension and the end of a sandbox's time never both happen: a
//     sandbox whose time is over is not extended, and one that was extended is
//     not due. One that is paused is not extended either, but a Conflict. Nothing
//     passes the deadline. The time is the store's own.
//   - S6. A sandbox holds its part of the quota, and is in OpenSandboxes, until
//     it has ended; not a moment less.
//   - S7. DeleteSandboxes removes ended ones only.
//   - S8. CreateSandbox with an idempotency key that its tenant has used before
//     returns the sandbox that was made then, whatever became of it. The same key
//     with another request fails with Conflict; concurrent calls with one key make
//     one sandbox. A sandbox whose end began before it ran was not made: its key
//     is free again.
//   - S9. A paused sandbox has its time until its deadline, one that is resumed ttl
//     from then or until its deadline. A sandbox whose time is over is neither
//     paused nor resumed, but Gone.
//
// # Tenants and what they own
//
//   - T1. KeyByHash finds a key with its tenant, usable or not: revoked, expired,
//     of a disabled tenant. Keys and tenants are what was last put on record.
//   - T2. A changed quota holds from the next call on.
//   - U1. An upload can be read by its tenant only. StaleUploads and CreateJob
//     never give one to both.
//   - U2. The bytes of uploads are set aside before they are kept. CreateUpload
//     and GrowUpload fail with Exhausted when the tenant would have more than its
//     quota; concurrent calls cannot pass it together. CreateUpload fails with
//     Invalid for more than the whole quota, and CompleteUpload for more than was
//     set aside; what was set aside and not used is given back.
//   - A1. Audit entries are only added: the database refuses changes. Whoever
//     reads on from the last Seq misses none, however many are added at once.
//
// # After the end
//
//   - R1. Unsigned lists terminal jobs until SignJob gives them a receipt. The
//     first receipt stays, and only a terminal job gets one.
//   - R2. Expired lists and DeleteJob removes terminal jobs only. With a job go
//     its log, labels and artifacts, and what they took of a quota.
//   - R3. ActiveAttempts names exactly the attempts that a worker has, or had
//     when it was lost, and that have not ended.
//   - R4. Stats counts every job once.
//
// # Hints
//
//   - H1. Watch tells that a job may have changed, at some time after it did.
//     Hints can be lost; whoever waits looks from time to time.
//
// # What holds at all times
//
//   - G1. All methods may be called concurrently, by many processes where the
//     adapter says so.
//   - G2. When the database is away, methods fail with Unavailable within a
//     bounded time, and work again when it is back. A method that failed so may
//     have happened or not; each can be repeated.
//   - G3. A process that is killed at any moment leaves a record that is whole.
package store

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Store is all of the record. Users take the part they need.
type Store interface {
	Jobs
	Leases
	Sandboxes
	Housekeeping
	Tenants
	Audit
	Uploads
	// Ping reports whether the record can be read and written now.
	Ping(ctx context.Context) error
	Close() error
}

// Jobs is what callers of the API see. The tenant is part of every question.
type Jobs interface {
	CreateJob(ctx context.Context, job NewJob) (_ run.Job, created bool, _ error)
	Job(ctx context.Context, tenantID, id string) (run.Job, error)
	Jobs(ctx context.Context, q JobQuery) (JobPage, error)
	CancelJob(ctx context.Context, tenantID, id string) (run.Job, error)
	// Log returns entries after the given Seq, oldest first, as many as fit
	// into maxBytes of data, but at least one if there is one.
	Log(ctx context.Context, tenantID, id string, after int64, maxBytes int) ([]run.LogEntry, error)
	Artifacts(ctx context.Context, tenantID, id string) ([]run.Artifact, error)
	// Receipt returns the signed statement, or NotFound while there is none.
	Receipt(ctx context.Context, tenantID, id string) ([]byte, error)
	// Watch returns a channel that gets a value after the job has changed (H1).
	// It holds one value at most. Stop frees it.
	Watch(ctx context.Context, id string) (changed <-chan struct{}, stop func(), _ error)
}

// NewJob is a job to be put on record.
type NewJob struct {
	ID       string
	TenantID string
	Spec     run.JobSpec
	// IdempotencyKey may be empty. RequestDigest tells equal requests.
	IdempotencyKey string
	RequestDigest  [32]byte
	// TraceParent becomes the job's. It is no part of the request: a request
	// that is repeated has another one.
	TraceParent string
}

// JobQuery says which jobs of a tenant.
type JobQuery struct {
	TenantID string
	// States, if any, and every label must match. Times that are zero do not
	// bound; After is inclusive and Before is not.
	States        []run.State
	Labels        map[string]string
	CreatedAfter  time.Time
	CreatedBefore time.Time
	Limit         int
	// Cursor is JobPage.Next of the page before.
	Cursor string
}

// JobPage is a page of a list. Next is empty on the last. The jobs have no
// steps.
type JobPage struct {
	Jobs []run.Job
	Next string
}

// Lease is a worker's hold on a job.
type Lease struct {
	JobID string
	// Worker is for people.
	Worker string
	// Fence tells this hold from every other one.
	Fence int64
}

// Claimed is a job with the lease on it and the tenant it belongs to.
type Claimed struct {
	Lease  Lease
	Job    run.Job
	Tenant tenant.Tenant
	// Adopted says that another worker had the job: it may have a sandbox.
	Adopted bool
}

// Leases is what workers see.
type Leases interface {
	Claim(ctx context.Context, worker string, ttl time.Duration) (_ Claimed, ok bool, _ error)
	// Renew makes the lease last ttl from now and says whether a caller wants
	// the job to end.
	Renew(ctx context.Context, l Lease, ttl time.Duration) (cancelRequested bool, _ error)
	// Place notes the execution service that will have the sandbox, before the
	// sandbox exists.
	Place(ctx context.Context, l Lease, node string) error
	Resolve(ctx context.Context, l Lease, r run.Resolved) error
	StartStep(ctx context.Context, l Lease, step run.Step) error
	// EndStep keeps how a started step ended; the first end stays.
	EndStep(ctx context.Context, l Lease, step run.Step) error
	// AppendLog may be called with entries of one step only, in order. It
	// returns where the log of that step ends.
	AppendLog(ctx context.Context, l Lease, entries []run.LogEntry) (end int64, _ error)
	// LogEnd says up to which offset the log of a step is on record.
	LogEnd(ctx context.Context, l Lease, step int) (int64, error)
	// AddArtifact may be repeated: the path is its name.
	AddArtifact(ctx context.Context, l Lease, a run.Artifact) error
	Finish(ctx context.Context, l Lease, end End) error
	// Requeue gives the job back. Lost says that a command may have run in the
	// attempt that ends here.
	Requeue(ctx context.Context, l Lease, lost bool) error
}

// End is how a job ended.
type End struct {
	State   run.State
	Outcome run.Outcome
	Usage   run.Usage
	// Lost says that a command may have run in the attempt, and that nobody knows
	// how far.
	Lost bool
}

// Attempt names one attempt of a job.
type Attempt struct {
	JobID   string
	Attempt int
}

// Housekeeping is for the loops that look at everything.
type Housekeeping interface {
	// ActiveAttempts returns which of the given attempts are active now.
	ActiveAttempts(ctx context.Context, of []Attempt) (map[Attempt]bool, error)
	// Unsigned returns terminal jobs without a receipt, with their steps, oldest
	// first.
	Unsigned(ctx context.Context, limit int) ([]run.Job, error)
	// SignJob keeps the receipt of a terminal job; the first one stays.
	SignJob(ctx context.Context, id string, receipt []byte) error
	// ArtifactsOf is Artifacts for whoever signs.
	ArtifactsOf(ctx context.Context, id string) ([]run.Artifact, error)
	// Expired returns terminal jobs that ended before a time, oldest first.
	Expired(ctx context.Context, before time.Time, limit int) ([]run.Job, error)
	// DeleteJob removes a terminal job and all that belongs to it. Its bytes
	// in the object store must be gone before. It may be repeated.
	DeleteJob(ctx context.Context, id string) error
	Stats(ctx context.Context) (Stats, error)
}

// Stats counts jobs.
type Stats struct {
	ByState map[run.State]int64
	// OldestQueued is how long the oldest queued job has waited.
	OldestQueued time.Duration
}

// Tenants is who may do what.
type Tenants interface {
	CreateTenant(ctx context.Context, t tenant.Tenant) error
	Tenant(ctx context.Context, id string) (tenant.Tenant, error)
	Tenants(ctx context.Context) ([]tenant.Tenant, error)
	// UpdateTenant replaces everything but ID and CreatedAt.
	UpdateTenant(ctx context.Context, t tenant.Tenant) error
	CreateKey(ctx context.Context, k tenant.Key) error
	// KeyByHash returns a key, usable or not, with its tenant, or NotFound.
	KeyByHash(ctx context.Context, hash [32]byte) (tenant.Key, tenant.Tenant, error)
	Keys(ctx context.Context, tenantID string) ([]tenant.Key, error)
	RevokeKey(ctx context.Context, tenantID, keyID string) error
	// TouchKey notes that the key was used; it may be rounded.
	TouchKey(ctx context.Context, keyID string, at time.Time) error
}

// AuditEntry is one thing somebody did. Entries are only ever added.
type AuditEntry struct {
	Seq      int64     `json:"seq"`
	At       time.Time `json:"at"`
	TenantID string    `json:"tenant_id"`
	KeyID    string    `json:"key_id,omitempty"`
	// Action is like "job.create"; Object is the id of what it was done to.
	Action string `json:"action"`
	Object string `json:"object,omitempty"`
	// Result is "ok" or the code of a fault.
	Result string `json:"result"`
	// Remote is the address it came from.
	Remote string `json:"remote,omitempty"`
}

// Audit is the record of who did what. The database itself refuses changes of
// what is in it.
type Audit interface {
	AppendAudit(ctx context.Context, e AuditEntry) error
	// AuditLog returns entries after a Seq, oldest first; of every tenant when
	// tenantID is empty.
	AuditLog(ctx context.Context, tenantID string, after int64, limit int) ([]AuditEntry, error)
}

// Upload is an archive that a caller sent for jobs to come.
type Upload struct {
	ID       string
	TenantID string
	Key      string // in the object store
	// Bytes are those set aside for it, and its size once it is complete.
	Bytes  int64
	SHA256 string
	// Complete is false from the moment it is on record until its bytes are
	// kept.
	Complete  bool
	CreatedAt time.Time
}

// Uploads are archives on record, before their bytes exist (intent first).
type Uploads interface {
	// CreateUpload sets u.Bytes aside.
	CreateUpload(ctx context.Context, u Upload) error
	// GrowUpload sets aside, for an upload that is not complete, what the quota
	// has up to most bytes in all, but at least as many as least. It returns how
	// many are set aside then, which are never fewer than before.
	GrowUpload(ctx context.Context, id string, least, most int64) (aside int64, _ error)
	// CompleteUpload sets size and digest.
	CompleteUpload(ctx context.Context, id string, bytes int64, sha256 string) error
	Upload(ctx context.Context, tenantID, id string) (Upload, error)
	// StaleUploads returns uploads made and last used for a new job before a
	// time, that no job which has not ended refers to, oldest first. What it
	// has returned is no longer complete, so that no new job can refer to it.
	StaleUploads(ctx context.Context, before time.Time, limit int) ([]Upload, error)
	// DeleteUpload may be repeated.
	DeleteUpload(ctx context.Context, id string) error
}
