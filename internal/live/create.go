package live

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Labels by which the sandboxes of an execution service are known to be live
// ones (REQUIREMENTS B10). A job's have a third, and an id of another form.
const (
	labelSandbox = "agentdock.sandbox"
	labelID      = "agentdock.execution_id"
	labelAttempt = "agentdock.attempt"
)

// MinTTL is the shortest time a sandbox can be given.
const MinTTL = time.Second

// again is how often is looked at a sandbox that another call is making.
const again = 100 * time.Millisecond

// undoFor bounds what is done for a sandbox after its caller has gone.
const undoFor = time.Minute

// Request is a sandbox that a caller asks for. What is zero is left to the
// operator's settings.
type Request struct {
	Image  string
	Env    map[string]string
	Limits run.Limits
	Labels map[string]string
	TTL    time.Duration
	// IdempotencyKey may be empty. The same key brings back the same sandbox.
	IdempotencyKey string
}

// Create makes a sandbox and returns when commands can run in it. When it
// fails, or its caller goes away first, nothing is left but the record of it.
// created is false when the idempotency key has brought back a sandbox that was
// made before, as it is now.
func (s *Sandboxes) Create(ctx context.Context, caller control.Caller, r Request) (made run.Sandbox, created bool, err error) {
	defer func() {
		if created || err != nil {
			s.audit(ctx, caller, "sandbox.create", made.ID, err)
		}
	}()
	n, err := s.complete(caller, r)
	if err != nil {
		return run.Sandbox{}, false, err
	}
	made, err = s.put(ctx, n)
	if err != nil || made.ID != n.ID {
		return made, false, err
	}
	made, err = s.begin(ctx, made, r.Env)
	return made, err == nil, err
}

// put puts a sandbox on record, or returns the one that the same request has
// made. While that is being made, it waits: should it fail, it was not made, and
// this call makes one.
func (s *Sandboxes) put(ctx context.Context, n store.NewSandbox) (run.Sandbox, error) {
	for {
		made, err := s.record.CreateSandbox(ctx, n)
		if err != nil || made.ID == n.ID || made.State != run.SandboxCreating {
			return made, err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return run.Sandbox{}, fault.Wrap(fault.Unavailable, ctx.Err(), "the same request is making a sandbox; ask again")
		}
	}
}

// begin makes a sandbox that is on record.
func (s *Sandboxes) begin(ctx context.Context, made run.Sandbox, env map[string]string) (run.Sandbox, error) {
	starting, cancel := context.WithTimeout(ctx, s.cfg.Starting-min(s.cfg.Starting/4, 15*time.Second))
	defer cancel()
	started, err := s.start(starting, made, env)
	if err != nil {
		s.undo(ctx, made.ID, err)
		return made, err
	}
	return started, nil
}

// complete fills in what the caller left to us, and refuses what no service
// should be asked for.
func (s *Sandboxes) complete(caller control.Caller, r Request) (store.NewSandbox, error) {
	// The request is named as it was asked for: other defaults tomorrow make no
	// other request.
	key, digest, err := named(r)
	if err != nil {
		return store.NewSandbox{}, err
	}
	if r.Image == "" {
		r.Image = s.cfg.Image
	}
	if r.TTL == 0 {
		r.TTL = s.cfg.TTL
	}
	asked := r.Limits
	r.Limits = r.Limits.Or(s.cfg.Defaults).Clamp(s.cfg.Ceiling)
	if s.cfg.Open {
		r.Limits = r.Limits.LeaveOpen(asked)
	}
	for _, check := range []error{
		control.CheckImage(r.Image), control.CheckLimits(r.Limits), control.CheckEnv("env", r.Env),
		control.CheckLabels(r.Labels), checkTTL(r.TTL),
	} {
		if check != nil {
			return store.NewSandbox{}, check
		}
	}
	id, err := newID()
	if err != nil {
		return store.NewSandbox{}, err
	}
	return store.NewSandbox{
		ID: id, TenantID: caller.Tenant.ID, AccessToken: rand.Text(), TTL: r.TTL, MaxLifetime: s.cfg.MaxLifetime,
		IdempotencyKey: key, RequestDigest: digest,
		Spec: run.SandboxSpec{Image: r.Image, EnvNames: slices.Sorted(maps.Keys(r.Env)), Limits: r.Limits, Labels: r.Labels},
	}, nil
}

// named is how a request is known by its idempotency key. The values of its
// variables are not on record, so what is must not let them be guessed: the digest
// is keyed with the caller's key, of which the record has a hash.
func named(r Request) (key string, digest [sha256.Size]byte, err error) {
	if r.IdempotencyKey == "" {
		return "", digest, nil
	}
	if err := control.CheckIdempotencyKey(r.IdempotencyKey); err != nil {
		return "", digest, err
	}
	mac := hmac.New(sha256.New, []byte(r.IdempotencyKey))
	sum := sha256.Sum256([]byte(r.IdempotencyKey))
	r.IdempotencyKey = ""
	asked, err := json.Marshal(r)
	if err != nil {
		return "", digest, fault.Wrap(fault.Invalid, err, "cannot take the request")
	}
	mac.Write(asked)
	return hex.EncodeToString(sum[:]), [sha256.Size]byte(mac.Sum(nil)), nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL {
		return fault.New(fault.Invalid, "a time to live of %s is less than %s", ttl, MinTTL)
	}
	return nil
}

// idEncoding keeps the order of what it encodes.
var idEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// newID makes a name nothing else has. It is also the name of the sandbox at
// its execution service, and can be a part of a host name. It begins with the
// time, so that rows made together lie together.
func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fault.Wrap(fault.Internal, err, "cannot make an id")
	}
	text := []byte(idEncoding.EncodeToString(id[:]))
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			text[i] = c + 'a' - 'A'
		}
	}
	return string(text), nil
}

// isID keeps what is no id away from the record.
func isID(s string) bool {
	if len(s) != 26 {
		return false
	}
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'v') })
}

// start makes the sandbox at the service with the most room, or the next one if
// that has none or never can. The service is on record before it is asked.
func (s *Sandboxes) start(ctx context.Context, made run.Sandbox, env map[string]string) (run.Sandbox, error) {
	services, err := s.nodes.byRoom(ctx)
	if err != nil {
		return run.Sandbox{}, err
	}
	var none error
	for _, service := range services {
		started, err := s.startAt(ctx, service, made, env)
		switch fault.CodeOf(err) {
		default:
			return started, err
		case fault.Exhausted:
			none = err // there may be room later, whatever others say
		case fault.Unsupported:
			if none == nil {
				none = err
			}
		}
	}
	return run.Sandbox{}, none
}

func (s *Sandboxes) startAt(ctx context.Context, service *node, made run.Sandbox, env map[string]string) (run.Sandbox, error) {
	conn, err := s.nodes.connect(ctx, service)
	if err != nil {
		return run.Sandbox{}, err
	}
	if err := s.record.PlaceSandbox(ctx, made.ID, service.Name); err != nil {
		return run.Sandbox{}, err
	}
	box, err := conn.Create(ctx, execenv.Spec{
		ID: made.ID, Image: made.Spec.Image, Env: env, Limits: made.Spec.Limits,
		Labels:   map[string]string{labelSandbox: "true", labelID: made.ID},
		Lifetime: made.ExpiresAt.Sub(made.CreatedAt),
	})
	if err != nil {
		service.drop(conn, err)
		if fault.Is(err, fault.NotFound) {
			err = fault.Wrap(fault.Invalid, err, "there is no image %q", made.Spec.Image)
		}
		return run.Sandbox{}, err
	}
	info, err := box.Info(ctx)
	if err != nil {
		return run.Sandbox{}, err
	}
	caps := conn.Capabilities()
	started, err := s.record.StartSandbox(ctx, made.ID, run.Resolved{
		ImageDigest: info.ImageDigest, Isolation: string(caps.Isolation), Environment: caps.Name + " " + caps.Version,
	})
	if err == nil {
		s.handles.keep(made.ID, conn, box)
	}
	return started, err
}

// undo ends a sandbox that could not be made. What cannot be removed now is
// removed by a sweep: until then it is on record.
func (s *Sandboxes) undo(ctx context.Context, id string, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	outcome := run.Outcome{Kind: run.InfrastructureLost, Evidence: "the sandbox could not be made: " + fault.Public(why)}
	switch fault.CodeOf(why) {
	case fault.Invalid, fault.Unsupported, fault.Denied:
		outcome.Kind = run.PolicyDenied
	}
	if _, err := s.end(ctx, id, outcome); err != nil {
		s.log.WarnContext(ctx, "cannot remove a sandbox that could not be made; trying again later",
			slog.String("sandbox", id), slog.Any("error", errors.Join(why, err)))
		s.poke()
	}
}
