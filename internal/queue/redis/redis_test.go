package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/queue/queuetest"
	"github.com/agentdock/agentdock/internal/queue/redis"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestContract(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{Broker: broker})
}

// broker is a server for one case: cases stop it.
func broker(t *testing.T) queuetest.Broker {
	r := testenv.StartRedis(t)
	return queuetest.Broker{
		Open: func() (queue.Queue, error) { return redis.Open(r.URL) },
		Away: map[string]func() (back func()){
			"stopped": func() func() { r.Stop(); return r.Start },
			"killed":  func() func() { r.Kill(); return r.Start },
			"paused":  func() func() { r.Pause(); return r.Resume },
		},
		Flush: func() { admin(t, r).FlushAll(context.Background()) },
		Kept:  func() int64 { return admin(t, r).LLen(context.Background(), queue.Key).Val() },
	}
}

func admin(t *testing.T, r *testenv.Redis) *goredis.Client {
	t.Helper()
	opt, err := goredis.ParseURL(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(opt)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestPasswordIsNotTold(t *testing.T) {
	_, err := redis.Open("http://:s3cret@host")
	if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}

// TestListIsTheDocumentedOne: other programs may look at it (REQUIREMENTS B9).
func TestListIsTheDocumentedOne(t *testing.T) {
	r := testenv.StartRedis(t)
	q, err := redis.Open(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for _, id := range []string{"first", "second"} {
		if err := q.Wake(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	list, err := admin(t, r).LRange(t.Context(), "agentdock:executions", 0, -1).Result()
	if err != nil || len(list) != 2 || list[0] != "second" || list[1] != "first" {
		t.Errorf("the list is %q, %v", list, err)
	}
}

// listener is a logger of the library's.
type listener func(string)

func (l listener) Printf(_ context.Context, format string, v ...any) { l(fmt.Sprintf(format, v...)) }

// TestTheLibrarySaysNothing: a worker's standard error is JSON lines.
func TestTheLibrarySaysNothing(t *testing.T) {
	q, err := redis.Open(testenv.StartRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	goredis.SetLogger(listener(func(text string) { t.Errorf("the library says on standard error: %s", text) }))
	defer goredis.SetLogger(listener(func(string) {}))
	if _, ok, err := q.Wait(t.Context(), 300*time.Millisecond); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
}
