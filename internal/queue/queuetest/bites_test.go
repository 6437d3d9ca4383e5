package queuetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/queue/queuetest"
)

// mutantVar tells a child process which defect to run the suite against.
const mutantVar = "QUEUETEST_MUTANT"

// mutant is a queue with a defect.
type mutant struct {
	defect, caughtBy string
	wake             func(ctx context.Context, q queue.Queue, id string) error
	wait             func(ctx context.Context, q queue.Queue, timeout time.Duration) (string, bool, error)
}

var mutants = []mutant{
	{defect: "a wake is lost when nobody waits", caughtBy: "Q1_wake_ends_a_later_wait",
		wake: func(context.Context, queue.Queue, string) error { return nil }},
	{defect: "a wake is sent twice", caughtBy: "Q1_wake_ends_a_later_wait",
		wake: func(ctx context.Context, q queue.Queue, id string) error {
			return errors.Join(q.Wake(ctx, id), q.Wake(ctx, id))
		}},
	{defect: "who waits is not told which job", caughtBy: "Q1_wake_ends_a_wait_that_is_on",
		wait: func(ctx context.Context, q queue.Queue, timeout time.Duration) (string, bool, error) {
			_, ok, err := q.Wait(ctx, timeout)
			return "", ok, err
		}},
	{defect: "a job is in the queue once only", caughtBy: "Q2_messages_are_doubled", wake: onlyOnce()},
	{defect: "time is an error", caughtBy: "Q3_time_passes",
		wait: func(ctx context.Context, q queue.Queue, timeout time.Duration) (string, bool, error) {
			id, ok, err := q.Wait(ctx, timeout)
			if err == nil && !ok {
				err = context.DeadlineExceeded
			}
			return id, ok, err
		}},
	{defect: "the context is not looked at", caughtBy: "Q3_context_ends",
		wait: func(ctx context.Context, q queue.Queue, timeout time.Duration) (string, bool, error) {
			return q.Wait(context.WithoutCancel(ctx), timeout)
		}},
	{defect: "the newest go first when there are too many", caughtBy: "Q6_oldest_go_first", wake: full()},
}

func onlyOnce() func(context.Context, queue.Queue, string) error {
	var seen sync.Map
	return func(ctx context.Context, q queue.Queue, id string) error {
		if _, again := seen.LoadOrStore(id, true); again {
			return nil
		}
		return q.Wake(ctx, id)
	}
}

func full() func(context.Context, queue.Queue, string) error {
	n := 0
	return func(ctx context.Context, q queue.Queue, id string) error {
		if n++; n > queue.MaxKept {
			return nil
		}
		return q.Wake(ctx, id)
	}
}

// defective has the defect in place of a method.
type defective struct {
	queue.Queue
	m mutant
}

func (d defective) Wake(ctx context.Context, id string) error {
	if d.m.wake == nil {
		return d.Queue.Wake(ctx, id)
	}
	return d.m.wake(ctx, d.Queue, id)
}

func (d defective) Wait(ctx context.Context, timeout time.Duration) (string, bool, error) {
	if d.m.wait == nil {
		return d.Queue.Wait(ctx, timeout)
	}
	return d.m.wait(ctx, d.Queue, timeout)
}

// TestSuiteBites runs the suite against queues with one defect each: the case
// that is about it must fail, and pass without it.
func TestSuiteBites(t *testing.T) {
	if os.Getenv(mutantVar) != "" {
		t.Skip("this is the child")
	}
	for i, m := range mutants {
		t.Run(m.caughtBy+"/"+m.defect, func(t *testing.T) {
			t.Parallel()
			if out, err := child(t, i, m.caughtBy); !strings.Contains(out, "--- FAIL: TestMutant/"+m.caughtBy) {
				t.Errorf("the suite let it pass (%v):\n%s", err, out)
			}
			if out, err := child(t, -1, m.caughtBy); err != nil {
				t.Errorf("the case fails without a defect: %v\n%s", err, out)
			}
		})
	}
}

func child(t *testing.T, mutant int, only string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMutant$/^"+only+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mutantVar+"="+strconv.Itoa(mutant))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run the child: %v", err)
	}
	return string(out), err
}

// TestMutant runs the suite in a child process.
func TestMutant(t *testing.T) {
	which, err := strconv.Atoi(os.Getenv(mutantVar))
	if err != nil {
		return // not a child
	}
	queuetest.Run(t, queuetest.Harness{
		Patience: 2 * time.Second,
		Broker: func(*testing.T) queuetest.Broker {
			q := memory.New()
			return queuetest.Broker{Open: func() (queue.Queue, error) {
				if which < 0 {
					return q, nil
				}
				return defective{q, mutants[which]}, nil
			}}
		},
	})
}
