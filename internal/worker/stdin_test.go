package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/run"
)

func TestStdinArrivesWhole(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	text := strings.Repeat("0123456789abcde\n", 300<<10/16) // more than a pipe holds
	id := w.submit(run.JobSpec{Limits: run.Limits{OutputBytes: run.MiB}, Commands: []run.Command{
		{Argv: []string{"cat"}, Stdin: []byte(text)},
		{Argv: []string{"true"}, Stdin: []byte(text)}, // reads none of it
		{Argv: []string{"cat"}, Stdin: []byte("the next has its own\n")},
		{Argv: []string{"cat"}},
	}})
	w.ended(id, run.Succeeded, run.Exited)
	if got := w.output(id); got != text+"the next has its own\n" {
		t.Errorf("the log has %d bytes, want %d", len(got), len(text)+21)
	}
}

// gate is a program that reads up to a number of bytes of its input, says how
// many there were, and goes on when it is let.
func gate(most int64, open <-chan struct{}) fake.Program {
	return func(p *fake.Proc) int {
		n, _ := io.Copy(io.Discard, io.LimitReader(bufio.NewReaderSize(p.Stdin, 16), most))
		fmt.Fprintf(p.Stdout, "read %d\n", n)
		select {
		case <-open:
		case <-p.Done():
		}
		n, _ = io.Copy(io.Discard, p.Stdin)
		fmt.Fprintf(p.Stdout, "then %d\n", n)
		return 0
	}
}

// succeed has a worker let go of a job whose command has said that it read, and
// another one take it.
func (w *world) succeed(id string) {
	w.Helper()
	cfg := config()
	cfg.Drain = time.Millisecond
	stop := w.start(cfg, w.deps())
	w.eventually("a program that has read", func() bool { return strings.Contains(w.output(id), "read") })
	stop()
	w.start(config(), w.deps())
}

// TestStdinOutlivesItsWorker: a command that has all its input goes on when the
// worker does not, and is given nothing twice.
func TestStdinOutlivesItsWorker(t *testing.T) {
	open := make(chan struct{})
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{"gate": gate(1<<30, open)}})
	id := w.submit(run.JobSpec{Commands: []run.Command{{Argv: []string{"gate"}, Stdin: make([]byte, 200<<10)}}})
	w.succeed(id)
	close(open)
	w.ended(id, run.Succeeded, run.Exited)
	if got, want := w.output(id), fmt.Sprintf("read %d\nthen 0\n", 200<<10); got != want {
		t.Errorf("log %q, want %q", got, want)
	}
}

// TestWorkerDiesWhileItWritesStdin: how far it came is not known, so the command
// is lost, and is neither given a part for the whole nor anything twice.
func TestWorkerDiesWhileItWritesStdin(t *testing.T) {
	open := make(chan struct{})
	defer close(open)
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{"gate": gate(10, open)}})
	id := w.submit(run.JobSpec{Commands: []run.Command{{Argv: []string{"gate"}, Stdin: make([]byte, 400<<10)}}})
	w.succeed(id)
	job := w.ended(id, run.Failed, run.InfrastructureLost)
	if !strings.Contains(job.Outcome.Evidence, "standard input") {
		t.Errorf("the evidence is %q", job.Outcome.Evidence)
	}
}

func TestEndAtLimit(t *testing.T) {
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{"shout": func(p *fake.Proc) int {
		for { // until it is killed
			fmt.Fprintln(p.Stdout, strings.Repeat("x", 1000))
		}
	}}})
	w.start(config(), w.deps())
	id := w.submit(run.JobSpec{Limits: run.Limits{OutputBytes: 5000}, Commands: []run.Command{
		{Argv: []string{"shout"}, EndAtLimit: []run.Limit{run.LimitPIDs, run.LimitOutput}},
	}})
	w.ended(id, run.Failed, run.LimitOutput.EndsAt())
}

func TestDepth(t *testing.T) {
	w := newWorld(t, fake.Config{})
	deps := w.deps()
	var asked []int
	deps.Repositories = repositories(func(ctx context.Context, sb execenv.Sandbox, req checkout.Request) (checkout.Result, error) {
		asked = append(asked, req.Depth)
		return checkout.Fixture{}.Into(ctx, sb, req)
	})
	w.start(config(), deps)
	for _, depth := range []int{0, 7, -1} {
		w.ended(w.submit(run.JobSpec{Commands: commands("true"), Source: run.Source{
			Kind: run.SourceRepository, Repository: "https://example.com/a/b", Depth: depth,
		}}), run.Succeeded, run.Exited)
	}
	if fmt.Sprint(asked) != "[0 7 -1]" {
		t.Errorf("asked for %v commits", asked)
	}
}
