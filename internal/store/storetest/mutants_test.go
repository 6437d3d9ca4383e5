package storetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// mutant is a store with a defect.
type mutant struct {
	defect, caughtBy string
	plant            func(store.Store) store.Store
}

// defective has hooks in place of methods.
type defective struct {
	store.Store
	createJob   func(context.Context, store.NewJob) (run.Job, bool, error)
	job         func(ctx context.Context, tenantID, id string) (run.Job, error)
	jobs        func(context.Context, store.JobQuery) (store.JobPage, error)
	cancelJob   func(ctx context.Context, tenantID, id string) (run.Job, error)
	log         func(ctx context.Context, tenantID, id string, after int64, maxBytes int) ([]run.LogEntry, error)
	watch       func(context.Context, string) (<-chan struct{}, func(), error)
	claim       func(context.Context, string, time.Duration) (store.Claimed, bool, error)
	startStep   func(context.Context, store.Lease, run.Step) error
	appendLog   func(context.Context, store.Lease, []run.LogEntry) (int64, error)
	finish      func(context.Context, store.Lease, store.End) error
	requeue     func(context.Context, store.Lease, bool) error
	addArtifact func(context.Context, store.Lease, run.Artifact) error
	signJob     func(context.Context, string, []byte) error
	deleteJob   func(context.Context, string) error
	revokeKey   func(ctx context.Context, tenantID, keyID string) error

	completeUpload func(ctx context.Context, id string, bytes int64, sha256 string) error
}

func whole(s store.Store) *defective {
	return &defective{
		Store: s, createJob: s.CreateJob, job: s.Job, jobs: s.Jobs, cancelJob: s.CancelJob, log: s.Log, watch: s.Watch,
		claim: s.Claim, startStep: s.StartStep, appendLog: s.AppendLog, finish: s.Finish, requeue: s.Requeue,
		addArtifact: s.AddArtifact, signJob: s.SignJob, deleteJob: s.DeleteJob, revokeKey: s.RevokeKey,
		completeUpload: s.CompleteUpload,
	}
}

func (d *defective) CreateJob(ctx context.Context, n store.NewJob) (run.Job, bool, error) {
	return d.createJob(ctx, n)
}
func (d *defective) Job(ctx context.Context, t, id string) (run.Job, error) { return d.job(ctx, t, id) }
func (d *defective) Jobs(ctx context.Context, q store.JobQuery) (store.JobPage, error) {
	return d.jobs(ctx, q)
}
func (d *defective) CancelJob(ctx context.Context, t, id string) (run.Job, error) {
	return d.cancelJob(ctx, t, id)
}
func (d *defective) Log(ctx context.Context, t, id string, after int64, n int) ([]run.LogEntry, error) {
	return d.log(ctx, t, id, after, n)
}
func (d *defective) Watch(ctx context.Context, id string) (<-chan struct{}, func(), error) {
	return d.watch(ctx, id)
}
func (d *defective) Claim(ctx context.Context, w string, ttl time.Duration) (store.Claimed, bool, error) {
	return d.claim(ctx, w, ttl)
}
func (d *defective) StartStep(ctx context.Context, l store.Lease, s run.Step) error {
	return d.startStep(ctx, l, s)
}
func (d *defective) AppendLog(ctx context.Context, l store.Lease, e []run.LogEntry) (int64, error) {
	return d.appendLog(ctx, l, e)
}
func (d *defective) Finish(ctx context.Context, l store.Lease, e store.End) error {
	return d.finish(ctx, l, e)
}
func (d *defective) Requeue(ctx context.Context, l store.Lease, lost bool) error {
	return d.requeue(ctx, l, lost)
}
func (d *defective) AddArtifact(ctx context.Context, l store.Lease, a run.Artifact) error {
	return d.addArtifact(ctx, l, a)
}
func (d *defective) SignJob(ctx context.Context, id string, r []byte) error {
	return d.signJob(ctx, id, r)
}
func (d *defective) DeleteJob(ctx context.Context, id string) error { return d.deleteJob(ctx, id) }
func (d *defective) CompleteUpload(ctx context.Context, id string, bytes int64, sha256 string) error {
	return d.completeUpload(ctx, id, bytes, sha256)
}
func (d *defective) RevokeKey(ctx context.Context, t, id string) error {
	return d.revokeKey(ctx, t, id)
}

// plant makes a defect from a function that changes the hooks.
func plant(change func(*defective)) func(store.Store) store.Store {
	return func(s store.Store) store.Store {
		d := whole(s)
		change(d)
		return d
	}
}

var mutants = []mutant{
	{"the key is forgotten", "J1_key_makes_one_job", plant(func(d *defective) {
		d.createJob = func(ctx context.Context, n store.NewJob) (run.Job, bool, error) {
			n.IdempotencyKey = ""
			return d.Store.CreateJob(ctx, n)
		}
	})},
	{"the digest is not compared", "J1_key_with_another_request", plant(func(d *defective) {
		d.createJob = func(ctx context.Context, n store.NewJob) (run.Job, bool, error) {
			n.RequestDigest = [32]byte{}
			return d.Store.CreateJob(ctx, n)
		}
	})},
	{"the quota is not looked at", "J2_queue_quota", noQuota},
	{"the quota is not looked at", "J2_queue_quota_raced", noQuota},
	{"a job is shown to everybody", "J3_other_tenants_see_nothing", plant(func(d *defective) {
		owner := ""
		d.createJob = func(ctx context.Context, n store.NewJob) (run.Job, bool, error) {
			owner = n.TenantID
			return d.Store.CreateJob(ctx, n)
		}
		d.job = func(ctx context.Context, _, id string) (run.Job, error) { return d.Store.Job(ctx, owner, id) }
	})},
	{"pages begin with a count", "J4_pages_while_jobs_are_added", plant(func(d *defective) {
		d.jobs = func(ctx context.Context, q store.JobQuery) (store.JobPage, error) {
			skip := len(q.Cursor)
			limit := q.Limit
			q.Cursor, q.Limit = "", skip+limit
			page, err := d.Store.Jobs(ctx, q)
			if page.Next != "" {
				page.Next = string(make([]byte, skip+limit))
			}
			page.Jobs = page.Jobs[min(skip, len(page.Jobs)):]
			return page, err
		}
	})},
	{"an active job is not marked", "J5_active_job_is_marked", plant(func(d *defective) {
		d.cancelJob = func(ctx context.Context, t, id string) (run.Job, error) {
			if j, err := d.Store.Job(ctx, t, id); err != nil || j.State.Active() {
				return j, err
			}
			return d.Store.CancelJob(ctx, t, id)
		}
	})},
	{"a refused end is another one", "J6_moves_that_are_not_in_the_table", plant(func(d *defective) {
		d.finish = func(ctx context.Context, l store.Lease, e store.End) error {
			if err := d.Store.Finish(ctx, l, e); err != nil {
				e.State = run.Failed
				return d.Store.Finish(ctx, l, e)
			}
			return nil
		}
	})},
	{"a claim is given out again", "L1_each_job_once", plant(func(d *defective) {
		var last store.Claimed
		d.claim = func(ctx context.Context, w string, ttl time.Duration) (store.Claimed, bool, error) {
			c, ok, err := d.Store.Claim(ctx, w, ttl)
			if ok {
				last = c
			}
			return last, last.Lease.JobID != "", err
		}
	})},
	{"an append needs no lease", "L2_old_lease_changes_nothing", plant(func(d *defective) {
		d.appendLog = func(ctx context.Context, l store.Lease, e []run.LogEntry) (int64, error) {
			_, err := d.Store.AppendLog(ctx, l, e)
			return 0, ignore(err)
		}
	})},
	{"the oldest job of all comes first", "L3_tenants_take_turns", plant(func(d *defective) {
		var order []string
		d.createJob = func(ctx context.Context, n store.NewJob) (run.Job, bool, error) {
			order = append(order, n.ID)
			return d.Store.CreateJob(ctx, n)
		}
		d.claim = func(ctx context.Context, w string, ttl time.Duration) (store.Claimed, bool, error) {
			for {
				c, ok, err := d.Store.Claim(ctx, w, ttl)
				if !ok || err != nil || c.Job.ID == order[0] {
					order = slices.Delete(order, 0, 1)
					return c, ok, err
				}
				if err := d.Store.Requeue(ctx, c.Lease, false); err != nil {
					return c, false, err
				}
			}
		}
	})},
	{"quotas of what runs are not looked at", "L4_running_processors_memory", noQuota},
	{"a step is not on record", "L7_start_makes_it_running", plant(func(d *defective) {
		d.startStep = func(context.Context, store.Lease, run.Step) error { return nil }
	})},
	{"a repeat is appended behind", "L8_replays_and_overlaps", plant(func(d *defective) {
		d.appendLog = func(ctx context.Context, l store.Lease, e []run.LogEntry) (int64, error) {
			end, err := d.Store.LogEnd(ctx, l, e[0].Step)
			if err != nil {
				return 0, err
			}
			for i := range e {
				e[i].Offset = end
				end += int64(len(e[i].Data))
			}
			return d.Store.AppendLog(ctx, l, e)
		}
	})},
	{"a hole is closed in silence", "L8_hole_is_refused", plant(func(d *defective) {
		d.appendLog = func(ctx context.Context, l store.Lease, e []run.LogEntry) (int64, error) {
			end, err := d.Store.AppendLog(ctx, l, e)
			return end, ignore(err)
		}
	})},
	{"the reader is given too much", "L8_reader_gets_as_many_as_fit", plant(func(d *defective) {
		d.log = func(ctx context.Context, t, id string, after int64, n int) ([]run.LogEntry, error) {
			return d.Store.Log(ctx, t, id, after, n+1)
		}
	})},
	{"the outcome is lost", "L9_outcome_is_kept_once", plant(func(d *defective) {
		d.finish = func(ctx context.Context, l store.Lease, e store.End) error {
			e.Outcome.LimitsHit = nil
			return d.Store.Finish(ctx, l, e)
		}
	})},
	{"a lost attempt is not counted that was the last", "L9_lost_attempts_count", plant(func(d *defective) {
		d.finish = func(ctx context.Context, l store.Lease, e store.End) error {
			e.Lost = false
			return d.Store.Finish(ctx, l, e)
		}
	})},
	{"a lost attempt is not counted", "L10_requeue_keeps_the_log_only", plant(func(d *defective) {
		d.requeue = func(ctx context.Context, l store.Lease, _ bool) error { return d.Store.Requeue(ctx, l, false) }
	})},
	{"artifacts have no quota", "L11_artifact_quota", noQuota},
	{"uploads have no quota", "U2_upload_quota", noQuota},
	{"uploads have no quota", "U2_upload_quota_raced", noQuota},
	{"room is taken and not set aside", "U2_unused_room_is_given_back", plant(func(d *defective) {
		d.completeUpload = func(ctx context.Context, id string, bytes int64, sha256 string) error {
			return ignore(d.Store.CompleteUpload(ctx, id, bytes, sha256))
		}
	})},
	{"a revoked key is forgotten", "T1_keys_that_open_nothing_are_found", plant(func(d *defective) {
		d.revokeKey = func(context.Context, string, string) error { return nil }
	})},
	{"anybody may sign", "R1_unsigned_until_signed", plant(func(d *defective) {
		d.signJob = func(ctx context.Context, id string, r []byte) error { return ignore(d.Store.SignJob(ctx, id, r)) }
	})},
	{"a living job is deleted", "R2_only_terminal_jobs", plant(func(d *defective) {
		d.deleteJob = func(ctx context.Context, id string) error { return ignore(d.Store.DeleteJob(ctx, id)) }
	})},
	{"hints are held back", "H1_holds_one_value", plant(func(d *defective) {
		d.watch = func(ctx context.Context, id string) (<-chan struct{}, func(), error) {
			_, stop, err := d.Store.Watch(ctx, id)
			many := make(chan struct{}, 20)
			many <- struct{}{}
			return many, stop, err
		}
	})},
}

func noQuota(s store.Store) store.Store { return unlimited{s} }

// unlimited forgets every quota.
type unlimited struct{ store.Store }

func (u unlimited) CreateTenant(ctx context.Context, t tenant.Tenant) error {
	t.Quota = tenant.Quota{}
	return u.Store.CreateTenant(ctx, t)
}

// ignore is what a store does that reports no failure.
func ignore(error) error { return nil }
