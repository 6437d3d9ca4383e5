package worker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store/sqlite"
)

func TestSampleRepository(t *testing.T) {
	w := newWorld(t)
	w.withRecord(func(s *sqlite.Store) {
		w.submit(s, "sample", run.JobSpec{
			Source: run.Source{Kind: run.SourceFixture}, Artifacts: []string{"dist/**"},
			Commands: []run.Command{{Argv: []string{"python3", "tools/check.py"}}, {Argv: []string{"id", "-u"}}},
		})
		w.inHere(s, func() {
			job := w.until(s, "sample", ended)
			if job.State != run.Succeeded || len(job.Steps) != 2 || job.Usage.PeakMemoryBytes == 0 || job.Resolved.Isolation != "kernel" ||
				!strings.HasPrefix(job.Resolved.ImageDigest, "sha256:") {
				t.Errorf("%+v, %+v", job, job.Outcome)
			}
			if log := w.log(s, "sample"); !strings.Contains(log, "52 passed") || !strings.HasSuffix(log, "10001\n") {
				t.Errorf("%s", log)
			}
			artifacts, err := s.Artifacts(t.Context(), "t", "sample")
			w.ok(err)
			if len(artifacts) != 2 {
				t.Errorf("%+v", artifacts)
			}
			st := w.receipt(s, "sample")
			for i, a := range artifacts {
				r, _, err := w.blobs().Open(t.Context(), a.Key)
				w.ok(err)
				sum := sha256.New()
				n, err := io.Copy(sum, r)
				w.ok(err)
				r.Close()
				if got := hex.EncodeToString(sum.Sum(nil)); got != a.SHA256 || n != a.Bytes || st.Subject[i+1].Digest["sha256"] != got {
					t.Errorf("%+v holds %d bytes with the digest %s; the receipt says %+v", a, n, got, st.Subject[i+1])
				}
			}
			w.nothingLeft()
		})
	})
}

// TestWorkerIsKilled kills a worker in the middle of a command. Another one goes
// on: the command does not notice, and the log has no hole.
func TestWorkerIsKilled(t *testing.T) {
	const lines = 100
	w := newWorld(t)
	script := fmt.Sprintf("echo once >> runs; i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.05; done", lines)
	w.withRecord(func(s *sqlite.Store) {
		w.submit(s, "job", run.JobSpec{
			Commands:  []run.Command{{Argv: []string{"echo", "first"}}, {Argv: []string{"sh", "-c", script}}, {Argv: []string{"cat", "runs"}}},
			Artifacts: []string{"runs"},
		})
	})
	// Twice, at different places.
	for _, line := range []string{"line 20\n", "line 50\n"} {
		p := w.startProcess()
		w.says("job-1", "step-1", line)
		p.kill()
	}
	w.withRecord(func(s *sqlite.Store) {
		w.inHere(s, func() {
			job := w.until(s, "job", ended)
			var want strings.Builder
			want.WriteString("first\n")
			for i := range lines {
				fmt.Fprintf(&want, "line %d\n", i)
			}
			want.WriteString("once\n")
			if got := w.log(s, "job"); got != want.String() {
				t.Errorf("the log is not whole:\n%s", got)
			}
			if job.State != run.Succeeded || job.Attempt != 1 || job.Lost != 0 {
				t.Errorf("%+v, %+v", job, job.Outcome)
			}
			if st := w.receipt(s, "job"); st.Predicate.Job.Attempts != 1 || len(st.Predicate.Steps) != 3 {
				t.Errorf("%+v", st.Predicate)
			}
			w.nothingLeft()
		})
	})
}

// TestWorkerIsStopped: after SIGTERM and its drain, the job goes on as well.
func TestWorkerIsStopped(t *testing.T) {
	w := newWorld(t)
	w.withRecord(func(s *sqlite.Store) {
		w.submit(s, "job", run.JobSpec{Commands: []run.Command{{Argv: []string{"sh", "-c", "echo begun; sleep 4; echo done"}}}})
	})
	p := w.startProcess()
	w.says("job-1", "step-0", "begun")
	w.ok(p.cmd.Process.Signal(unix.SIGTERM))
	<-p.gone
	w.ok(p.err)
	w.withRecord(func(s *sqlite.Store) {
		w.inHere(s, func() {
			if job := w.until(s, "job", ended); job.State != run.Succeeded || job.Attempt != 1 || w.log(s, "job") != "begun\ndone\n" {
				t.Errorf("%+v, %+v, %q", job, job.Outcome, w.log(s, "job"))
			}
			w.nothingLeft()
		})
	})
}

func TestCancelInEveryState(t *testing.T) {
	w := newWorld(t)
	w.withRecord(func(s *sqlite.Store) {
		sleep := run.JobSpec{Commands: []run.Command{{Argv: []string{"sh", "-c", "trap '' TERM; echo begun; sleep 1000"}}}}
		cancel := func(id string) {
			_, err := s.CancelJob(t.Context(), "t", id)
			w.ok(err)
		}
		cancelled := func(id string) run.Job {
			job := w.until(s, id, ended)
			if job.State != run.StateCancelled || job.Outcome.Kind != run.Cancelled {
				t.Errorf("%s: %+v, %+v", id, job, job.Outcome)
			}
			return job
		}
		w.submit(s, "queued", sleep)
		cancel("queued")
		w.inHere(s, func() {
			if job := cancelled("queued"); job.Attempt != 0 {
				t.Errorf("%+v", job)
			}
			w.submit(s, "starting", sleep)
			w.until(s, "starting", func(j run.Job) bool { return j.Node != "" })
			cancel("starting")
			cancelled("starting")
			w.submit(s, "running", sleep)
			w.says("running-1", "step-0", "begun")
			cancel("running")
			if job := cancelled("running"); len(job.Steps) != 1 || job.Steps[0].Outcome.Kind != run.Cancelled || w.log(s, "running") != "begun\n" {
				t.Errorf("%+v, %q", job, w.log(s, "running"))
			}
			w.submit(s, "over", run.JobSpec{Commands: []run.Command{{Argv: []string{"true"}}}})
			w.until(s, "over", ended)
			cancel("over")
			if job := w.until(s, "over", ended); job.State != run.Succeeded {
				t.Errorf("%+v", job)
			}
			w.nothingLeft()
		})
	})
}

// TestExecutionServiceIsKilled: what it ran is lost, and so said; the job that
// may have another attempt gets one when the service is back.
func TestExecutionServiceIsKilled(t *testing.T) {
	w := newWorld(t)
	w.withRecord(func(s *sqlite.Store) {
		once := run.JobSpec{Commands: []run.Command{{Argv: []string{"sh", "-c", "echo begun; sleep 1000"}}}, Artifacts: []string{"**"}}
		twice := once
		twice.MaxAttempts = 2
		w.submit(s, "once", once)
		w.submit(s, "twice", twice)
		w.inHere(s, func() {
			w.says("once-1", "step-0", "begun")
			w.says("twice-1", "step-0", "begun")
			// What only the service has of an output goes with it.
			w.until(s, "twice", func(run.Job) bool { return w.log(s, "twice") == "begun\n" })
			w.execd.Kill()
			w.execd.Start()
			job := w.until(s, "once", ended)
			if job.State != run.Failed || job.Outcome.Kind != run.InfrastructureLost || job.Steps[0].Outcome == nil {
				t.Errorf("%+v, %+v", job, job.Outcome)
			}
			w.says("twice-2", "step-0", "begun")
			_, err := s.CancelJob(t.Context(), "t", "twice")
			w.ok(err)
			if job := w.until(s, "twice", ended); job.State != run.StateCancelled || job.Attempt != 2 || job.Lost != 1 || w.log(s, "twice") != "begun\nbegun\n" {
				t.Errorf("%+v, %q", job, w.log(s, "twice"))
			}
			w.nothingLeft()
		})
	})
}
