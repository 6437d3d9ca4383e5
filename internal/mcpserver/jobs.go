package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// mostWait bounds how long get_job waits for the end of a job.
const mostWait = 10 * time.Minute

type submitInput struct {
	Commands       [][]string        `json:"commands" jsonschema:"programs with their arguments, run one after the other in one sandbox until one fails; no shell takes them apart"`
	Repository     string            `json:"repository,omitempty" jsonschema:"HTTPS URL of a git repository that becomes the workspace; it starts empty if left out"`
	Ref            string            `json:"ref,omitempty" jsonschema:"branch, tag or commit of the repository"`
	Fixture        bool              `json:"fixture,omitempty" jsonschema:"the sample repository becomes the workspace"`
	Image          string            `json:"image,omitempty" jsonschema:"name of the root image; the server's default if left out"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"variables for every command; no secrets"`
	Artifacts      []string          `json:"artifacts,omitempty" jsonschema:"globs below the workspace of files to keep, such as dist/**"`
	Labels         map[string]string `json:"labels,omitempty" jsonschema:"names and values by which people find the job"`
	TimeoutSeconds int64             `json:"timeout_seconds,omitempty" jsonschema:"seconds for the whole job; the server's default if left out"`
}

type jobInput struct {
	JobID          string `json:"job_id" jsonschema:"id from submit_job"`
	WaitSeconds    int64  `json:"wait_seconds,omitempty" jsonschema:"wait for its end, but not longer than this; at most 600"`
	MaxOutputBytes int64  `json:"max_output_bytes,omitempty" jsonschema:"how many bytes of each stream to return, from 256 to 524288; 32768 if left out"`
}

type jobStep struct {
	Command    []string `json:"command" jsonschema:"the program and its arguments"`
	Outcome    string   `json:"outcome,omitempty" jsonschema:"how it ended; absent while it runs"`
	ExitCode   *int     `json:"exit_code,omitempty" jsonschema:"for exited only"`
	DurationMS int64    `json:"duration_ms" jsonschema:"how long it ran"`
}

type jobOutput struct {
	JobID         string    `json:"job_id" jsonschema:"names the job in get_job"`
	State         string    `json:"state" jsonschema:"queued, starting, running, succeeded, failed or cancelled; the last three are final"`
	Outcome       string    `json:"outcome,omitempty" jsonschema:"how it ended: exited, signalled, wall_clock, out_of_memory, not_started, checkout_failed, policy_denied, …"`
	ExitCode      *int      `json:"exit_code,omitempty" jsonschema:"of the command that decided, for exited only"`
	Explanation   string    `json:"explanation,omitempty" jsonschema:"what the outcome was decided from, or what a queued job waits for"`
	Steps         []jobStep `json:"steps" jsonschema:"the commands that were started"`
	Artifacts     []string  `json:"artifacts" jsonschema:"files that were kept; at most 100 are named"`
	Stdout        string    `json:"stdout" jsonschema:"standard output of all commands so far; its middle is left out where truncated"`
	Stderr        string    `json:"stderr" jsonschema:"the same for standard error"`
	StdoutOmitted int64     `json:"stdout_omitted_bytes" jsonschema:"bytes that are not shown"`
	StderrOmitted int64     `json:"stderr_omitted_bytes" jsonschema:"bytes that are not shown"`
	Truncated     bool      `json:"truncated" jsonschema:"output was left out"`
	Altered       bool      `json:"altered" jsonschema:"control characters are shown as pictures such as ␛, and what is not text as U+FFFD"`
}

func (s *Server) addJobTools() {
	add(s, tool{
		name: "submit_job", title: "Submit a job", does: "submit the job",
		description: "Queue commands to run in a sandbox of their own, and return at once with the job's id. It goes on when this session ends. " +
			"Use it for long or independent work; use run_command for work step by step.",
		hints: mcp.ToolAnnotations{DestructiveHint: new(false)},
		advice: advice{
			api.ProblemCodeNotFound:  "leave out what it names, or give a name that exists",
			api.ProblemCodeExhausted: "wait until other jobs have ended",
		},
	}, (*call).submitJob)
	add(s, tool{
		name: "get_job", title: "Look at a job", does: "look at the job",
		description: "Return the state of a job, how it and its commands ended, what they wrote, and the names of its artifacts. wait_seconds waits for its end first.",
		hints:       mcp.ToolAnnotations{ReadOnlyHint: true},
		advice:      advice{api.ProblemCodeNotFound: "use the id that submit_job has returned"},
	}, (*call).getJob)
}

func (c *call) submitJob(ctx context.Context, in submitInput) (out jobOutput, err error) {
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds, 0)
	if err != nil {
		return out, err
	}
	spec := api.JobSpec{
		Source: api.Source{Kind: "none"}, Image: in.Image, Env: in.Env, Artifacts: in.Artifacts, Labels: in.Labels,
		TimeoutMS: timeout.Milliseconds(),
	}
	switch {
	case in.Repository != "" && in.Fixture:
		return out, refuse("give one of them", "it asks for a repository and for the sample")
	case in.Repository != "":
		spec.Source = api.Source{Kind: "repository", Repository: in.Repository, Ref: in.Ref}
	case in.Ref != "":
		return out, refuse("give repository too", "it has a ref and no repository")
	case in.Fixture:
		spec.Source = api.Source{Kind: "fixture"}
	}
	for _, argv := range in.Commands {
		spec.Commands = append(spec.Commands, api.Command{Argv: argv})
	}
	if len(spec.Commands) == 0 {
		return out, refuse(`give commands, such as [["make", "test"]]`, "it has no commands")
	}
	job, err := c.CreateJob(ctx, spec, "")
	if err != nil {
		return out, err
	}
	return shownJob(job), nil
}

func shownJob(job *api.Job) jobOutput {
	out := jobOutput{JobID: job.ID, State: string(job.State), Steps: []jobStep{}, Artifacts: []string{}, Explanation: label(job.Waiting)}
	if o := job.Outcome; o != nil {
		out.Outcome, out.ExitCode, out.Explanation = o.Kind, o.ExitCode, explanation(*o)
	}
	for _, s := range job.Steps {
		step := jobStep{Command: []string{}, DurationMS: s.DurationMS}
		if s.Index >= 0 && s.Index < len(job.Spec.Commands) {
			for _, arg := range job.Spec.Commands[s.Index].Argv {
				step.Command = append(step.Command, label(arg))
			}
		}
		if s.Outcome != nil {
			step.Outcome, step.ExitCode = s.Outcome.Kind, s.Outcome.ExitCode
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func (c *call) getJob(ctx context.Context, in jobInput) (out jobOutput, err error) {
	most, err := shownBytes(in.MaxOutputBytes)
	if err != nil {
		return out, err
	}
	if in.WaitSeconds < 0 || in.WaitSeconds > int64(mostWait/time.Second) {
		return out, refuse(fmt.Sprintf("give a number from 1 to %d", mostWait/time.Second), "wait_seconds is %d", in.WaitSeconds)
	}
	if in.WaitSeconds > 0 {
		if err := c.waitForJob(ctx, in.JobID, time.Duration(in.WaitSeconds)*time.Second); err != nil {
			return out, err
		}
	}
	job, err := c.Job(ctx, in.JobID)
	if err != nil {
		return out, err
	}
	out = shownJob(job)
	if err := c.addOutput(ctx, job, most, &out); err != nil {
		return out, err
	}
	artifacts, err := c.Artifacts(ctx, job.ID)
	if err != nil {
		return out, err
	}
	for _, a := range artifacts[:min(len(artifacts), mostListed)] {
		out.Artifacts = append(out.Artifacts, name(a.Path))
	}
	return out, nil
}

// waitForJob waits for the end of a job, or until its time is over: that is no
// error.
func (c *call) waitForJob(ctx context.Context, id string, most time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	started := make(chan struct{})
	close(started)
	defer c.progress(ctx, &execution{}, started)()
	_, err := c.Wait(waiting, id)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

func (c *call) addOutput(ctx context.Context, job *api.Job, most int, out *jobOutput) error {
	stdout, stderr := newExcerpt(most), newExcerpt(most)
	for event, err := range c.Log(ctx, job.ID, client.LogOptions{NoFollow: true}) {
		if err != nil {
			return err
		}
		if event.Output == nil {
			continue
		}
		to := stdout
		if event.Output.Stream == "stderr" {
			to = stderr
		}
		_, _ = to.Write(client.OutputBytes(event.Output))
	}
	var wrote, complained int64
	for _, s := range job.Steps {
		wrote += s.StdoutBytes
		complained += s.StderrBytes
	}
	o, e := stdout.show(wrote), stderr.show(complained)
	out.Stdout, out.StdoutOmitted, out.Stderr, out.StderrOmitted = o.text, o.omitted, e.text, e.omitted
	out.Truncated, out.Altered = o.omitted+e.omitted > 0, o.altered || e.altered
	return nil
}
