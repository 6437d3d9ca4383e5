package httpapi

import (
	"fmt"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

func specOf(s api.JobSpec) (run.JobSpec, error) {
	var err error
	ms := func(field string, v int64) time.Duration {
		d, e := control.Milliseconds(field, v)
		if err == nil {
			err = e
		}
		return d
	}
	spec := run.JobSpec{
		Source: run.Source{Kind: run.SourceKind(s.Source.Kind), Upload: s.Source.UploadID, Repository: s.Source.Repository, Ref: s.Source.Ref, Depth: s.Source.Depth},
		Image:  s.Image, Env: s.Env,
		Limits:  limitsWith(s.Limits, ms),
		Timeout: ms("timeout_ms", s.TimeoutMS), Artifacts: s.Artifacts, Labels: s.Labels, MaxAttempts: s.MaxAttempts,
	}
	for i, c := range s.Commands {
		spec.Commands = append(spec.Commands, run.Command{
			Argv: c.Argv, Dir: c.Dir, Env: c.Env, Stdin: c.Stdin, ContinueOnFailure: c.ContinueOnFailure,
			EndAtLimit: as[run.Limit](c.EndAtLimit), Timeout: ms(fmt.Sprintf("commands[%d].timeout_ms", i), c.TimeoutMS),
		})
	}
	return spec, err
}

func limitsWith(l api.Limits, ms func(string, int64) time.Duration) run.Limits {
	return run.Limits{
		MilliCPU: l.MilliCPU, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, DiskBytes: l.DiskBytes,
		Inodes: l.Inodes, OutputBytes: l.OutputBytes, WallClock: ms("limits.wall_clock_ms", l.WallClockMS),
	}
}

func limitsOf(l api.Limits) (run.Limits, error) {
	var err error
	limits := limitsWith(l, func(field string, v int64) time.Duration {
		var d time.Duration
		d, err = milliseconds(field, v)
		return d
	})
	return limits, err
}

func fromLimits(l run.Limits) api.Limits {
	return api.Limits{
		MilliCPU: l.MilliCPU, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, DiskBytes: l.DiskBytes,
		Inodes: l.Inodes, OutputBytes: l.OutputBytes, WallClockMS: l.WallClock.Milliseconds(),
	}
}

func fromUsage(u run.Usage) api.Usage {
	return api.Usage{
		MemoryBytes: u.MemoryBytes, PeakMemoryBytes: u.PeakMemoryBytes, CPUMS: u.CPU.Milliseconds(),
		PIDs: u.PIDs, DiskBytes: u.DiskBytes, Inodes: u.Inodes,
	}
}

func fromResolved(r run.Resolved) api.Resolved {
	return api.Resolved{
		Commit: r.Commit, ArchiveDigest: r.ArchiveDigest, ImageDigest: r.ImageDigest, Isolation: r.Isolation, Environment: r.Environment,
		ArtifactsIncomplete: r.Artifacts,
	}
}

func fromSpec(s run.JobSpec) api.JobSpec {
	spec := api.JobSpec{
		Source: api.Source{Kind: string(s.Source.Kind), UploadID: s.Source.Upload, Repository: s.Source.Repository, Ref: s.Source.Ref, Depth: s.Source.Depth},
		Image:  s.Image, Env: s.Env,
		Limits:    fromLimits(s.Limits),
		TimeoutMS: s.Timeout.Milliseconds(), Artifacts: s.Artifacts, Labels: s.Labels, MaxAttempts: s.MaxAttempts,
		Commands: []api.Command{},
	}
	for _, c := range s.Commands {
		spec.Commands = append(spec.Commands, api.Command{
			Argv: c.Argv, Dir: c.Dir, Env: c.Env, Stdin: c.Stdin, EndAtLimit: as[string](c.EndAtLimit),
			ContinueOnFailure: c.ContinueOnFailure, TimeoutMS: c.Timeout.Milliseconds(),
		})
	}
	return spec
}

// as turns words into those of another type.
func as[To, From ~string](from []From) (to []To) {
	for _, s := range from {
		to = append(to, To(s))
	}
	return to
}

// fromJob leaves out where the job runs: that is the operator's business.
func fromJob(j run.Job) api.Job {
	job := api.Job{
		ID: j.ID, State: api.JobState(j.State), Spec: fromSpec(j.Spec), Attempt: j.Attempt, Lost: j.Lost,
		CancelRequested: j.CancelRequested, Steps: []api.Step{}, Outcome: fromOutcome(j.Outcome),
		Usage: fromUsage(j.Usage), Resolved: fromResolved(j.Resolved),
		CreatedAt: j.CreatedAt.UTC(), StartedAt: utc(j.StartedAt), FinishedAt: utc(j.FinishedAt),
	}
	if j.State == run.Queued || j.State == run.Starting {
		job.Waiting = j.Resolved.Waiting
	}
	for _, s := range j.Steps {
		job.Steps = append(job.Steps, api.Step{
			Index: s.Index, Outcome: fromOutcome(s.Outcome), StdoutBytes: s.StdoutBytes, StderrBytes: s.StderrBytes,
			Truncated: s.Truncated, StartedAt: utc(s.StartedAt), DurationMS: s.Duration.Milliseconds(),
		})
	}
	return job
}

func fromOutcome(o *run.Outcome) *api.Outcome {
	if o == nil {
		return nil
	}
	outcome := api.Outcome{Kind: string(o.Kind), ExitCode: o.ExitCode, Signal: o.Signal, Evidence: o.Evidence, LimitsHit: []string{}}
	for _, l := range o.LimitsHit {
		outcome.LimitsHit = append(outcome.LimitsHit, string(l))
	}
	return &outcome
}

// utc leaves a time that is not set as it is: UTC would make it another value.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func fromTenant(t tenant.Tenant) api.Tenant {
	return api.Tenant{
		ID: t.ID, Name: t.Name, Disabled: t.Disabled, CreatedAt: t.CreatedAt.UTC(),
		Grants: api.Grants{Shell: t.Grants.Shell, Repositories: t.Grants.Repositories},
		Quota: api.Quota{
			Running: t.Quota.Running, Queued: t.Quota.Queued, Sandboxes: t.Quota.Sandboxes, MilliCPU: t.Quota.MilliCPU, MemoryBytes: t.Quota.MemoryBytes,
			ArtifactBytes: t.Quota.ArtifactBytes, UploadBytes: t.Quota.UploadBytes, RequestsPerMinute: t.Quota.RequestsPerMinute,
		},
	}
}

// change applies what is there of a quota.
func change(q *tenant.Quota, c api.QuotaChange) {
	set(&q.Running, c.Running)
	set(&q.Sandboxes, c.Sandboxes)
	set(&q.Queued, c.Queued)
	set(&q.MilliCPU, c.MilliCPU)
	set(&q.MemoryBytes, c.MemoryBytes)
	set(&q.ArtifactBytes, c.ArtifactBytes)
	set(&q.UploadBytes, c.UploadBytes)
	set(&q.RequestsPerMinute, c.RequestsPerMinute)
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func changeGrants(g *tenant.Grants, c api.GrantsChange) {
	set(&g.Shell, c.Shell)
	set(&g.Repositories, c.Repositories)
}

func fromScopes(scopes []tenant.Scope) []api.Scope {
	all := make([]api.Scope, len(scopes))
	for i, s := range scopes {
		all[i] = api.Scope(s)
	}
	return all
}

func fromKey(k tenant.Key) api.Key {
	return api.Key{
		ID: k.ID, TenantID: k.TenantID, Name: k.Name, Prefix: k.Prefix, Scopes: fromScopes(k.Scopes), CreatedAt: k.CreatedAt.UTC(),
		ExpiresAt: utc(k.ExpiresAt), LastUsedAt: utc(k.LastUsedAt), RevokedAt: utc(k.RevokedAt),
	}
}
