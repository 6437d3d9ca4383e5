package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/oneshot"
)

// submitFlags are those of a job that a run does not have.
type submitFlags struct {
	runFlags
	file   string
	labels []string
	wait   bool
}

const submitLong = `Submit a job and print its id. Its files are a copy of a directory, a repository, the
sample repository, or none. A job of several commands is written in a file, as the
JSON that the API takes.

With --wait its log is followed, and the exit status and the last line are those of
"agentdock run"; Ctrl-C cancels the job. Without, the exit status is 0 once the job
is on record.`

const submitExample = `  agentdock jobs submit --fixture --artifact 'dist/**' --wait -- python3 tools/check.py

  # your own directory; a repository at a ref
  agentdock jobs submit --dir . --memory 2g --timeout 10m -- python3 -m pytest
  agentdock jobs submit --repo https://github.com/org/repo --ref main -- make test

  # several commands
  agentdock jobs submit --file job.json
  {"source": {"kind": "fixture"}, "commands": [
     {"argv": ["python3", "-m", "pytest", "-q"], "continue_on_failure": true},
     {"argv": ["python3", "tools/build.py"]}], "artifacts": ["dist/**"]}`

func newJobsSubmit() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:     "submit [flags] -- PROGRAM [ARGUMENT…]",
		Short:   "Submit a job",
		Long:    submitLong,
		Example: submitExample,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			return f.submit(cmd, c, args)
		}),
	}
	f.defineJob(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.file, "file", "", "`file` with the whole job as JSON; - is standard input")
	fl.StringArrayVar(&f.labels, "label", nil, "label the job, `NAME=VALUE`; repeatable")
	fl.StringVar(&f.idempotencyKey, "idempotency-key", "", "`name` of this request: the same name brings back the same job")
	fl.BoolVar(&f.wait, "wait", false, "follow the log and end as the job does")
	fl.StringVar(&f.out, "out", defaultOut, "with --wait, `directory` to keep artifacts in")
	fl.BoolVar(&f.json, "json", false, "print one JSON object: the job, or with --wait what run prints")
	return cmd
}

func (f *submitFlags) submit(cmd *cobra.Command, c *client.Client, args []string) error {
	console := newConsole(cmd.ErrOrStderr())
	job, cleanup, err := f.send(cmd, c, console, args)
	defer cleanup()
	if err != nil {
		return remoteError(err)
	}
	if !f.wait {
		if f.json {
			return writeJSON(cmd.OutOrStdout(), job)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), job.ID)
		return err
	}
	return f.follow(cmd, c, console, job)
}

func (f *submitFlags) send(cmd *cobra.Command, c *client.Client, console *console, args []string) (*api.Job, func(), error) {
	ctx, nothing := cmd.Context(), func() {}
	if f.file != "" {
		if len(args) > 0 {
			return nil, nothing, fault.New(fault.Invalid, "--file has the commands; leave out %q", args[0])
		}
		spec, err := readSpec(cmd, f.file)
		if err != nil {
			return nil, nothing, err
		}
		job, err := c.CreateJob(ctx, spec, f.idempotencyKey)
		if err != nil {
			return nil, nothing, fmt.Errorf("cannot submit the job: %w", err)
		}
		return job, nothing, nil
	}
	req, cleanup, err := f.remoteRequest(ctx, args, cmd.InOrStdin(), console)
	if err != nil {
		return nil, cleanup, err
	}
	job, err := submit(ctx, c, &f.runFlags, req, func(spec *api.JobSpec) (err error) {
		spec.Labels, err = pairs("label", f.labels)
		return err
	}, console.phase)
	return job, cleanup, err
}

// mostSpec is what the API takes at most.
const mostSpec = 1 << 20

func readSpec(cmd *cobra.Command, name string) (spec api.JobSpec, err error) {
	var data []byte
	if name == "-" {
		data, err = readAtMost(cmd.InOrStdin(), mostSpec)
	} else {
		var f *os.File
		if f, err = os.Open(name); err == nil {
			defer f.Close()
			data, err = readAtMost(f, mostSpec)
		}
	}
	if err != nil {
		return spec, fmt.Errorf("cannot read the job: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, fault.New(fault.Invalid, "cannot read the job in %s: %v", name, err)
	}
	return spec, nil
}

// follow is the second half of --wait.
func (f *submitFlags) follow(cmd *cobra.Command, c *client.Client, console *console, job *api.Job) error {
	return runWatched(cmd, &f.runFlags, console, func(ctx context.Context, sinks oneshot.Sinks) oneshot.Report {
		ended, err := watch(ctx, c, job.ID, sinks)
		report := oneshot.Report{ID: job.ID, Out: f.out, Asked: len(job.Spec.Artifacts) > 0, Err: remoteError(err)}
		if ended != nil {
			report.Limits.OutputBytes = ended.Spec.Limits.OutputBytes
			collectRemote(ctx, c, ended, sinks, &report)
		}
		return report
	})
}
