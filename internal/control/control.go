// Package control holds the use cases behind the API: what a caller may ask
// for, and what happens then. It knows the ports and no adapter, and nothing of
// HTTP, so that every way in does the same.
//
// Who the caller is has been decided before (Authenticate); what the scopes of
// a key allow is the business of the way in, which knows its routes. Everything
// here takes the tenant from the caller and never from the request, but for the
// methods of Admin.
package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Record is the part of the store that use cases need. They hold no lease.
type Record interface {
	store.Jobs
	store.Tenants
	store.Audit
	store.Uploads
	Ping(ctx context.Context) error
}

// Config is what an operator decides. Its zero fields become those of
// DefaultConfig.
type Config struct {
	// Defaults fill in the limits that a job does not ask for; limits above
	// Ceiling are lowered to it.
	Defaults, Ceiling run.Limits
	// Open leaves limits of processor, memory and processes that neither a job nor
	// the operator asked for to the execution service, which may not be able to
	// enforce them: in development.
	Open bool
	// Development lets jobs run in sandboxes without a kernel of their own. It is on
	// record with each job, as those that run it have settings of their own.
	Development bool
	// Image is the root image of jobs that name none.
	Image string
	// Timeout bounds jobs that say nothing, and MaxTimeout all of them.
	Timeout, MaxTimeout time.Duration
	// Sources are the kinds of source that this service can provide.
	Sources []run.SourceKind
	// MaxUploadBytes bounds one uploaded archive.
	MaxUploadBytes int64
	// Quota is a new tenant's.
	Quota tenant.Quota
	// ReceiptKeys are the public keys that verify receipts.
	ReceiptKeys []ReceiptKey
	// LogPoll is how often a log that is followed is looked at when no hint
	// comes.
	LogPoll time.Duration
}

// ReceiptKey is a public key that verifies receipts.
type ReceiptKey struct {
	ID        string
	Algorithm string
	// PEM is its SubjectPublicKeyInfo.
	PEM string
}

// DefaultConfig is what applies unless an operator sets something else.
func DefaultConfig() Config {
	return Config{
		Defaults:       run.DefaultLimits(),
		Ceiling:        run.Ceiling(),
		Image:          "default",
		Timeout:        30 * time.Minute,
		MaxTimeout:     24 * time.Hour,
		Sources:        []run.SourceKind{run.SourceNone, run.SourceFixture, run.SourceArchive, run.SourceRepository},
		MaxUploadBytes: 1 << 30,
		Quota:          tenant.DefaultQuota(),
		LogPoll:        2 * time.Second,
	}
}

func (c Config) orDefaults() Config {
	d := DefaultConfig()
	c.Defaults = c.Defaults.Or(d.Defaults)
	c.Ceiling = c.Ceiling.Or(d.Ceiling)
	if c.Image == "" {
		c.Image = d.Image
	}
	if c.Timeout == 0 {
		c.Timeout = d.Timeout
	}
	if c.MaxTimeout == 0 {
		c.MaxTimeout = d.MaxTimeout
	}
	if c.Sources == nil {
		c.Sources = d.Sources
	}
	if c.MaxUploadBytes == 0 {
		c.MaxUploadBytes = d.MaxUploadBytes
	}
	if c.Quota == (tenant.Quota{}) {
		c.Quota = d.Quota
	}
	if c.LogPoll == 0 {
		c.LogPoll = d.LogPoll
	}
	return c
}

// Control runs the use cases. Its methods may be called concurrently.
type Control struct {
	cfg    Config
	record Record
	queue  queue.Queue
	blobs  blob.Store
	log    *slog.Logger

	mu      sync.Mutex
	touched map[string]time.Time // when the use of a key was last noted
}

// New makes the use cases over a record, a queue and an object store.
func New(cfg Config, record Record, q queue.Queue, blobs blob.Store, log *slog.Logger) (*Control, error) {
	cfg = cfg.orDefaults()
	if err := cfg.Defaults.Clamp(cfg.Ceiling).Validate(); err != nil {
		return nil, fmt.Errorf("cannot use the default limits: %w", err)
	}
	if cfg.Timeout < 0 || cfg.MaxTimeout < 0 || cfg.MaxUploadBytes < 0 || cfg.LogPoll < 0 {
		return nil, fmt.Errorf("cannot use the settings: a time or size is negative")
	}
	return &Control{cfg: cfg, record: record, queue: q, blobs: blobs, log: log, touched: map[string]time.Time{}}, nil
}

// Caller is who asks, and from where.
type Caller struct {
	tenant.Principal
	// Remote is the address the request came from, for the audit log.
	Remote string
}

// Check is one part that the service needs, and what is wrong with it.
type Check struct {
	Name string
	Err  error
}

// Ready looks at the parts that requests need. The queue is not among them: it
// carries hints only.
func (c *Control) Ready(ctx context.Context) []Check {
	return []Check{{"record", c.record.Ping(ctx)}, {"blobs", c.blobs.Ping(ctx)}}
}

// ReceiptKeys are the public keys that verify receipts.
func (c *Control) ReceiptKeys() []ReceiptKey { return c.cfg.ReceiptKeys }

// newID makes a name nothing else has. It begins with the time, so that rows
// made together lie together.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "cannot make an id")
	}
	return id.String(), nil
}

// isID keeps what is no id away from the record: nothing has such a name.
func isID(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.String() == s
}

// noSuch is the answer for what does not exist and for what is another
// tenant's.
func noSuch(what, id string) error {
	return fault.New(fault.NotFound, "there is no %s %q", what, clip(id))
}

// orNoSuch gives NotFound one wording, so that it cannot tell the two apart.
func orNoSuch(err error, what, id string) error {
	if fault.Is(err, fault.NotFound) {
		return noSuch(what, id)
	}
	return err
}
