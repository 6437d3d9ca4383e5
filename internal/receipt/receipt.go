// Package receipt says of a job that has ended what ran and how it ended, signed
// (REQUIREMENTS C1). A receipt is an in-toto statement in a DSSE envelope, so
// tools that know those read it; docs/receipt.md describes it.
//
// It is made from the record and nothing else, and the same record gives the
// same bytes. Of environment variables it has the names only, and of standard
// input the size: a value may be a secret, and even the digest of a short one
// gives it away.
package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

const (
	// StatementType and PayloadType are in-toto's.
	StatementType = "https://in-toto.io/Statement/v1"
	PayloadType   = "application/vnd.in-toto+json"
	// PredicateType names the form of Predicate. A form that means something
	// else gets another name.
	PredicateType = "https://github.com/agentdock/agentdock/receipt/v1"
)

// Statement is what is signed.
type Statement struct {
	Type string `json:"_type"`
	// Subject has the request first, and then the artifacts.
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is something the statement is about. The digest of the request is
// that of the predicate's "request", as it stands there.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Predicate says what was asked for, what it turned out to be, and what came of
// it.
type Predicate struct {
	Job      Job      `json:"job"`
	Request  Request  `json:"request"`
	Resolved Resolved `json:"resolved"`
	// Steps are the commands that were started, in the last attempt.
	Steps     []Step     `json:"steps"`
	State     run.State  `json:"state"`
	Outcome   Outcome    `json:"outcome"`
	Usage     Usage      `json:"usage"`
	Artifacts []Artifact `json:"artifacts"`
}

// Job is which job it was, and when. Attempts counts its sandboxes, and Lost
// those of them that were lost after a command may have run.
type Job struct {
	ID         string    `json:"id"`
	TenantID   string    `json:"tenant_id"`
	Attempts   int       `json:"attempts"`
	Lost       int       `json:"lost"`
	Node       string    `json:"node,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// Request is what the caller asked for.
type Request struct {
	Source      run.Source        `json:"source"`
	Image       string            `json:"image"`
	Commands    []Command         `json:"commands"`
	EnvNames    []string          `json:"env_names"`
	Limits      Limits            `json:"limits"`
	TimeoutMS   int64             `json:"timeout_ms"`
	Artifacts   []string          `json:"artifacts"`
	Labels      map[string]string `json:"labels"`
	MaxAttempts int               `json:"max_attempts"`
}

// Command is one command of the request.
type Command struct {
	Argv              []string `json:"argv"`
	Dir               string   `json:"dir"`
	EnvNames          []string `json:"env_names"`
	TimeoutMS         int64    `json:"timeout_ms"`
	ContinueOnFailure bool     `json:"continue_on_failure"`
	// What was not asked for is left out: receipts from before these existed
	// say the same.
	StdinBytes int         `json:"stdin_bytes,omitempty"`
	EndAtLimit []run.Limit `json:"end_at_limit,omitempty"`
}

// Limits are those of the sandbox. One that is left out was not given: it is the
// default of whoever ran it, and where that enforces none, there was none.
type Limits struct {
	MilliCPU    int64 `json:"milli_cpu,omitzero"`
	MemoryBytes int64 `json:"memory_bytes,omitzero"`
	PIDs        int64 `json:"pids,omitzero"`
	DiskBytes   int64 `json:"disk_bytes,omitzero"`
	Inodes      int64 `json:"inodes,omitzero"`
	OutputBytes int64 `json:"output_bytes,omitzero"`
	WallClockMS int64 `json:"wall_clock_ms,omitzero"`
}

// Resolved is what source, image and environment turned out to be.
type Resolved struct {
	Commit        string `json:"commit,omitempty"`
	ArchiveDigest string `json:"archive_digest,omitempty"`
	ImageDigest   string `json:"image_digest,omitempty"`
	Isolation     string `json:"isolation,omitempty"`
	Environment   string `json:"environment,omitempty"`
	Artifacts     string `json:"artifacts,omitempty"`
}

// resolved leaves out what is no result.
func resolved(r run.Resolved) Resolved {
	return Resolved{
		Commit: r.Commit, ArchiveDigest: r.ArchiveDigest, ImageDigest: r.ImageDigest, Isolation: r.Isolation, Environment: r.Environment,
		Artifacts: r.Artifacts,
	}
}

// Step is one command that was started. Its outcome is missing if nobody
// learned it.
type Step struct {
	Index       int       `json:"index"`
	Outcome     *Outcome  `json:"outcome,omitempty"`
	StdoutBytes int64     `json:"stdout_bytes"`
	StderrBytes int64     `json:"stderr_bytes"`
	Truncated   bool      `json:"truncated"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	DurationUS  int64     `json:"duration_us"`
}

// Outcome is run.Outcome.
type Outcome struct {
	Kind      run.Kind    `json:"kind"`
	ExitCode  *int        `json:"exit_code,omitempty"`
	Signal    string      `json:"signal,omitempty"`
	Evidence  string      `json:"evidence"`
	LimitsHit []run.Limit `json:"limits_hit"`
}

// Usage is what the sandbox used, with its peaks. What was not measured is left
// out: nobody signs a number that nobody took.
type Usage struct {
	PeakMemoryBytes int64 `json:"peak_memory_bytes,omitzero"`
	CPUUS           int64 `json:"cpu_us,omitzero"`
	DiskBytes       int64 `json:"disk_bytes,omitzero"`
	Inodes          int64 `json:"inodes,omitzero"`
}

// Artifact is a file that was kept. Its digest is that of the subject with its
// name.
type Artifact struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// Of is the statement about a job that has ended.
func Of(job run.Job, artifacts []run.Artifact) (Statement, error) {
	if !job.State.Terminal() || job.Outcome == nil {
		return Statement{}, fmt.Errorf("cannot make a receipt for job %s: it has not ended", job.ID)
	}
	req := request(job.Spec)
	shown, err := encode(req)
	if err != nil {
		return Statement{}, fmt.Errorf("cannot make a receipt for job %s: %w", job.ID, err)
	}
	digest := sha256.Sum256(shown)
	s := Statement{
		Type: StatementType, PredicateType: PredicateType,
		Subject: []Subject{{Name: "request of job " + job.ID, Digest: map[string]string{"sha256": hex.EncodeToString(digest[:])}}},
		Predicate: Predicate{
			Job: Job{
				ID: job.ID, TenantID: job.TenantID, Attempts: job.Attempt, Lost: job.Lost, Node: job.Node,
				CreatedAt: job.CreatedAt.UTC(), StartedAt: utc(job.StartedAt), FinishedAt: utc(job.FinishedAt),
			},
			Request: req, Resolved: resolved(job.Resolved), Steps: []Step{}, Artifacts: []Artifact{},
			State: job.State, Outcome: outcome(*job.Outcome),
			Usage: Usage{
				PeakMemoryBytes: job.Usage.PeakMemoryBytes, CPUUS: job.Usage.CPU.Microseconds(),
				DiskBytes: job.Usage.DiskBytes, Inodes: job.Usage.Inodes,
			},
		},
	}
	for _, st := range job.Steps {
		s.Predicate.Steps = append(s.Predicate.Steps, step(st))
	}
	// The order in which they were kept is no part of what they are.
	artifacts = slices.Clone(artifacts)
	slices.SortFunc(artifacts, func(a, b run.Artifact) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	for _, a := range artifacts {
		s.Subject = append(s.Subject, Subject{Name: a.Path, Digest: map[string]string{"sha256": a.SHA256}})
		s.Predicate.Artifacts = append(s.Predicate.Artifacts, Artifact{Path: a.Path, Bytes: a.Bytes})
	}
	return s, nil
}

func request(spec run.JobSpec) Request {
	l := spec.Limits
	r := Request{
		Source: spec.Source, Image: spec.Image, EnvNames: names(spec.Env), TimeoutMS: spec.Timeout.Milliseconds(),
		Limits: Limits{
			MilliCPU: l.MilliCPU, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, DiskBytes: l.DiskBytes, Inodes: l.Inodes,
			OutputBytes: l.OutputBytes, WallClockMS: l.WallClock.Milliseconds(),
		},
		Commands: []Command{}, Artifacts: orEmpty(spec.Artifacts), Labels: spec.Labels, MaxAttempts: max(spec.MaxAttempts, 1),
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	for _, c := range spec.Commands {
		r.Commands = append(r.Commands, Command{
			Argv: orEmpty(c.Argv), Dir: c.Dir, EnvNames: names(c.Env), TimeoutMS: c.Timeout.Milliseconds(), ContinueOnFailure: c.ContinueOnFailure,
			StdinBytes: len(c.Stdin), EndAtLimit: c.EndAtLimit,
		})
	}
	return r
}

func step(st run.Step) Step {
	s := Step{
		Index: st.Index, StdoutBytes: st.StdoutBytes, StderrBytes: st.StderrBytes, Truncated: st.Truncated,
		StartedAt: utc(st.StartedAt), DurationUS: st.Duration.Microseconds(),
	}
	if st.Outcome != nil {
		o := outcome(*st.Outcome)
		s.Outcome = &o
	}
	return s
}

func outcome(o run.Outcome) Outcome {
	return Outcome{Kind: o.Kind, ExitCode: o.ExitCode, Signal: o.Signal, Evidence: o.Evidence, LimitsHit: orEmpty(o.LimitsHit)}
}

func names(env map[string]string) []string { return orEmpty(slices.Sorted(maps.Keys(env))) }

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// utc leaves no time a time that is none.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// encode gives the same bytes for the same value.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
