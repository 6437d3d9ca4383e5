package platform

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/run"
)

// verdict is what is known of a job that has ended.
type verdict struct {
	job   *api.Job
	fence int64
	// artifacts is what is said to be wrong with them.
	artifacts string
}

// settle waits until jobs have ended and judges every one of them. What is
// wrong is said of the fault that was caused.
func (w *world) settle(of *row, jobs []*submitted) (ended []verdict) {
	w.Helper()
	for _, s := range jobs {
		select {
		case <-s.read:
		case <-time.After(patience):
			of.lost++
			w.Errorf("%s: job %s has not ended: %+v", of.fault, s.id, w.job(s.id))
			continue
		}
		v := w.judge(of, s)
		of.saw(v)
		ended = append(ended, v)
	}
	w.nothingLeft(of)
	return ended
}

func (w *world) job(id string) *api.Job {
	w.Helper()
	job, err := w.client.Job(w.ctx, id)
	w.ok(err)
	return job
}

func (w *world) judge(of *row, s *submitted) verdict {
	w.Helper()
	wrong := func(format string, args ...any) {
		w.Helper()
		w.Errorf("%s: job %s: %s", of.fault, s.id, fmt.Sprintf(format, args...))
	}
	job := w.job(s.id)
	v := verdict{job: job, fence: w.fence(s.id), artifacts: job.Resolved.ArtifactsIncomplete}
	if s.err != nil || s.end == nil {
		of.holes++
		wrong("whoever followed its log was not told the end: %v", s.err)
	}
	if !run.State(job.State).Terminal() || job.Outcome == nil || job.FinishedAt.IsZero() {
		of.lost++
		wrong("its log is over and it has not ended: %+v", job)
		return v
	}
	w.judgeLog(of, s, job, wrong)
	w.judgeRuns(of, s, v, wrong)
	w.judgeReceipt(s.id, job, wrong)
	return v
}

// judgeLog: what a follower got is what is on record, without a hole.
func (w *world) judgeLog(of *row, s *submitted, job *api.Job, wrong func(string, ...any)) {
	w.Helper()
	var again []api.LogOutput
	for event, err := range w.client.Log(w.ctx, s.id, client.LogOptions{}) {
		if err != nil {
			wrong("%v", err)
		} else if event.Output != nil {
			again = append(again, *event.Output)
		}
	}
	if text(again) != text(s.log) {
		of.holes++
		wrong("its follower got %d bytes, %.200q, and its log is %d, %.200q", len(text(s.log)), text(s.log), len(text(again)), text(again))
	}
	type place struct{ attempt, step int }
	ends := map[place]int64{}
	for i, o := range again {
		at := place{o.Attempt, o.Step}
		if o.Seq != int64(i+1) || o.Offset != ends[at] {
			of.holes++
			wrong("its log has a hole at %+v: it went to %d", o, ends[at])
		}
		ends[at] = o.Offset + int64(len(client.OutputBytes(&o)))
	}
	for _, step := range job.Steps {
		if step.Outcome == nil {
			wrong("command %d has no end", step.Index)
			continue
		}
		ended := step.Outcome.Kind == string(run.Exited)
		if got := ends[place{job.Attempt, step.Index}]; ended && got != step.StdoutBytes+step.StderrBytes {
			of.holes++
			wrong("command %d said %d bytes, and its log has %d", step.Index, step.StdoutBytes+step.StderrBytes, got)
		}
	}
}

// judgeRuns: in no attempt did a command begin twice, by what the record says,
// by what the programs said, and by what they wrote.
func (w *world) judgeRuns(of *row, s *submitted, v verdict, wrong func(string, ...any)) {
	w.Helper()
	said := map[int]map[int]string{} // by attempt and step
	for _, o := range s.log {
		if said[o.Attempt] == nil {
			said[o.Attempt] = map[int]string{}
		}
		said[o.Attempt][o.Step] += string(client.OutputBytes(&o))
	}
	for attempt, steps := range said {
		for step, text := range steps {
			if n := strings.Count(text, "begin "); n > 1 {
				of.twice++
				wrong("command %d began %d times in attempt %d", step, n, attempt)
			}
		}
	}
	for i, step := range v.job.Steps {
		if step.Index != i {
			wrong("its steps are %+v", v.job.Steps)
		}
	}
	if v.job.State != api.JobStateSucceeded {
		return
	}
	var want strings.Builder
	for step := range jobSteps {
		text := said[v.job.Attempt][step]
		begin, _, _ := strings.Cut(strings.TrimPrefix(text, "begin "), "\n")
		if whole := s.shape.output(begin); text != whole {
			of.holes++
			wrong("command %d succeeded and its log is not whole: it has %d bytes of %d and begins %.200q", step, len(text), len(whole), text)
		}
		fmt.Fprintf(&want, "begin %s\nend %s\n", begin, begin)
	}
	if len(v.job.Steps) != jobSteps {
		wrong("it succeeded with %d commands", len(v.job.Steps))
	}
	if v.artifacts != "" {
		return // and says so
	}
	var got bytes.Buffer
	if err := w.client.DownloadArtifact(w.ctx, s.id, "ran", &got); err != nil {
		wrong("%v", err)
	} else if got.String() != want.String() {
		of.twice++
		wrong("its file says that %q ran, and its log %q", got.String(), want.String())
	}
}

// output is all that a run of the program says.
func (s shape) output(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "begin %s\n", name)
	for i := range s.lines {
		line := fmt.Sprintf("line %d ", i)
		fmt.Fprintln(&b, line+strings.Repeat("x", max(0, s.width-len(line)-1)))
	}
	fmt.Fprintf(&b, "end %s\n", name)
	return b.String()
}

func text(log []api.LogOutput) string {
	var b strings.Builder
	for _, o := range log {
		b.Write(client.OutputBytes(&o))
	}
	return b.String()
}

func (w *world) judgeReceipt(id string, job *api.Job, wrong func(string, ...any)) {
	w.Helper()
	var envelope []byte
	w.eventually("no receipt for job "+id, func() bool {
		var err error
		envelope, err = w.record.Receipt(w.ctx, control.OperatorID, id)
		return err == nil
	})
	v, err := receipt.Verify(envelope, w.public)
	if err != nil {
		wrong("%v", err)
		return
	}
	if p := v.Statement.Predicate; p.Job.Attempts != job.Attempt || len(p.Steps) != len(job.Steps) {
		wrong("its receipt says %+v", p)
	}
}
