package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/oneshot"
	"github.com/agentdock/agentdock/internal/quantity"
	"github.com/agentdock/agentdock/internal/run"
)

// cancelFor is how long a job may take to end that a caller has given up.
const cancelFor = 30 * time.Second

// runRemote runs the command as a job of the server, and looks the same.
func (f *runFlags) runRemote(ctx context.Context, c *client.Client, argv []string, sinks oneshot.Sinks, console *console, stdin io.Reader) (report oneshot.Report) {
	req, cleanup, err := f.remoteRequest(ctx, argv, stdin, console)
	defer cleanup()
	if err != nil {
		return oneshot.Failed(ctx, req, err)
	}
	job, err := submit(ctx, c, f, req, nil, sinks.Phase)
	if err != nil {
		return oneshot.Failed(ctx, req, remoteError(err))
	}
	job, err = watch(ctx, c, job.ID, sinks)
	report = oneshot.Report{ID: req.ID, Limits: req.Limits, Out: req.Out, Asked: len(req.Artifacts) > 0, Err: remoteError(err)}
	if job == nil {
		return report
	}
	collectRemote(ctx, c, job, sinks, &report)
	return report
}

// collectRemote puts how the job ended into the report, and fetches what it
// left.
func collectRemote(ctx context.Context, c *client.Client, job *api.Job, sinks oneshot.Sinks, report *oneshot.Report) {
	report.ID, report.Result = job.ID, resultOf(job)
	if !report.Asked || ctx.Err() != nil {
		return
	}
	defer sinks.Phase("fetching artifacts")()
	list, err := c.Artifacts(ctx, job.ID)
	if err == nil {
		report.Artifacts, err = fetch(ctx, c, job.ID, list, report.Out)
	}
	if why := job.Resolved.ArtifactsIncomplete; err == nil && why != "" {
		err = errors.New(why)
	}
	report.ArtifactsErr = remoteError(err)
}

// remoteRequest is request for a job on a server, which cannot all that a run
// here can.
func (f *runFlags) remoteRequest(ctx context.Context, argv []string, stdin io.Reader, console *console) (oneshot.Request, func(), error) {
	for flag, why := range map[string]string{
		"allow":          "jobs of a server have no network; run it here with --local",
		"preset":         "jobs of a server have no network; run it here with --local",
		"image-dir":      "the images are the server's; name one with --image",
		"artifact-bytes": "the server's quota bounds artifacts; leave it out",
	} {
		if f.given(flag) {
			return oneshot.Request{}, func() {}, fault.New(fault.Invalid, "cannot use --%s with a server: %s (agentdock run --local takes it)", flag, why)
		}
	}
	f.remote = true
	return f.request(ctx, argv, stdin, console)
}

// submit sends the files, if any, and then the job.
func submit(ctx context.Context, c *client.Client, f *runFlags, req oneshot.Request, change func(*api.JobSpec) error, phase func(string) func()) (*api.Job, error) {
	input, err := readInput(ctx, req.Stdin)
	if err != nil {
		return nil, err
	}
	spec := api.JobSpec{
		Source:   api.Source{Kind: "none"},
		Commands: []api.Command{{Argv: req.Argv, Dir: req.Dir, Stdin: input, EndAtLimit: f.endAtLimit}},
		Env:      req.Env, Artifacts: req.Artifacts, Limits: limitsToAPI(f.asked),
	}
	if f.given("image") {
		spec.Image = req.Image
	}
	if change != nil {
		if err := change(&spec); err != nil {
			return nil, err
		}
	}
	switch {
	case f.fixture:
		spec.Source = api.Source{Kind: "fixture"}
	case f.given("repo"):
		spec.Source = api.Source{Kind: "repository", Repository: f.repo, Ref: f.ref}
		if f.given("depth") {
			spec.Source.Depth = cmp.Or(f.depth, -1) // the whole history
		}
	case req.Files != nil:
		ended := phase(req.FilesNote)
		upload, err := sendFiles(ctx, c, req)
		ended()
		if err != nil {
			return nil, err
		}
		spec.Source = api.Source{Kind: "archive", UploadID: upload.ID}
	}
	job, err := c.CreateJob(ctx, spec, f.idempotencyKey)
	if err != nil {
		return nil, fmt.Errorf("cannot submit the job: %w", err)
	}
	return job, nil
}

// mostInput is what a job takes as standard input.
const mostInput = 512 << 10

// readInput reads all of it: a job has its input on record before it starts.
func readInput(ctx context.Context, r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1)
	go func() { // a terminal may say nothing for ever
		data, err := io.ReadAll(io.LimitReader(r, mostInput+1))
		got <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case in := <-got:
		switch {
		case in.err != nil:
			return nil, fault.Wrap(fault.Invalid, in.err, "cannot read the input for the program")
		case len(in.data) > mostInput:
			return nil, fault.New(fault.Invalid, "cannot use --stdin with a server: the input is larger than %s; put it into a file below --dir (agentdock run --local takes it)", quantity.Size(mostInput))
		}
		return in.data, nil
	}
}

// sendFiles packs and uploads at once. If both sides fail, the side that reads
// the files knows why.
func sendFiles(ctx context.Context, c *client.Client, req oneshot.Request) (*api.Upload, error) {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := req.Files(ctx, w)
		packed <- err
		w.CloseWithError(err)
	}()
	upload, err := c.Upload(ctx, r)
	r.CloseWithError(errNoMore) // so that the packer ends, whatever it is doing
	packErr := <-packed
	switch {
	case packErr != nil && !errors.Is(packErr, errNoMore):
		return nil, packErr
	case err != nil:
		return nil, fmt.Errorf("cannot upload the files: %w", err)
	}
	return upload, nil
}

var errNoMore = errors.New("the server takes no more")

func limitsToAPI(l run.Limits) api.Limits {
	return api.Limits{
		MilliCPU: l.MilliCPU, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, DiskBytes: l.DiskBytes, Inodes: l.Inodes,
		OutputBytes: l.OutputBytes, WallClockMS: l.WallClock.Milliseconds(),
	}
}

// watch passes the log on and returns the job when it has ended. When ctx ends,
// the job is cancelled, and watched to its end.
func watch(ctx context.Context, c *client.Client, id string, sinks oneshot.Sinks) (*api.Job, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(cancelFor, cancel)
		// If this fails, the job goes on; that it did not end is said below.
		_, _ = c.CancelJob(life, id)
	})()
	_, err := c.CopyLog(life, id, sinks.Stdout, sinks.Stderr)
	if err != nil && ctx.Err() == nil && !errors.Is(err, client.ErrInterrupted) && client.CodeOf(err) == "" {
		// Nobody gets what the program says: it would run for nothing.
		_, _ = c.CancelJob(life, id)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot follow job %s: %w; see agentdock jobs get %s", id, err, id)
	}
	job, err := c.Job(life, id)
	if err != nil {
		return nil, fmt.Errorf("cannot learn how job %s ended: %w", id, err)
	}
	return job, nil
}

// remoteError is an error of the server with the code that a run here has.
func remoteError(err error) error {
	if code := client.CodeOf(err); code != "" {
		return fault.New(fault.Code(code), "%v", err)
	}
	return err
}

// outcomeOf is the outcome in the words of the domain.
func outcomeOf(o api.Outcome) run.Outcome {
	out := run.Outcome{Kind: run.Kind(o.Kind), ExitCode: o.ExitCode, Signal: o.Signal, Evidence: o.Evidence}
	for _, l := range o.LimitsHit {
		out.LimitsHit = append(out.LimitsHit, run.Limit(l))
	}
	return out
}

// resultOf is how a job ended, as of one command: its outcome is that of the
// command that decided, and the rest is of all.
func resultOf(job *api.Job) *execenv.Result {
	if job.Outcome == nil {
		return nil
	}
	res := &execenv.Result{Outcome: outcomeOf(*job.Outcome), Usage: run.Usage{
		PeakMemoryBytes: job.Usage.PeakMemoryBytes, CPU: time.Duration(job.Usage.CPUMS) * time.Millisecond,
	}}
	for i, s := range job.Steps {
		if i == 0 {
			res.StartedAt = s.StartedAt
		}
		res.StdoutBytes += s.StdoutBytes
		res.StderrBytes += s.StderrBytes
		res.Truncated = res.Truncated || s.Truncated
		res.Duration += time.Duration(s.DurationMS) * time.Millisecond
	}
	return res
}
