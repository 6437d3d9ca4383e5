package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// untilTold works until it is told to stop.
func untilTold(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStopManyTimesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		p := Loop("part", untilTold)
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if err := p.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		select {
		case <-p.Done():
		default:
			t.Error("Stop returned before the part had ended")
		}
		if err := p.Start(t.Context()); !errors.Is(err, ErrStarted) {
			t.Errorf("the second start: %v", err)
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	p := Loop("part", func(context.Context) error { t.Error("it ran"); return nil })
	for range 2 {
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Start(t.Context()); !errors.Is(err, ErrStarted) {
		t.Errorf("got %v", err)
	}
}

func TestStartThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := New("broken", func(context.Context, func()) error { return errors.New("no port") })
		if err := broken.Start(t.Context()); err == nil || err.Error() != "no port" {
			t.Errorf("got %v", err)
		}
		silent := New("silent", func(ctx context.Context, _ func()) error { return untilTold(ctx) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := silent.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for _, p := range []*Part{broken, silent} {
			select {
			case <-p.Done():
			default:
				t.Errorf("%s is still there", p.Name())
			}
		}
	})
}

func TestStopThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := Loop("slow", func(context.Context) error { <-release; return nil })
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "slow") {
			t.Errorf("got %v", err)
		}
		close(release)
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// recorder makes parts that note when they start and stop.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, what)
}

func (r *recorder) part(name string) *Part {
	return New(name, func(ctx context.Context, ready func()) error {
		r.note("+" + name)
		ready()
		<-ctx.Done()
		r.note("-" + name)
		return nil
	})
}

func TestGroupStopsInTheOppositeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		ctx, cancel := context.WithCancel(t.Context())
		g := Group{
			Parts: []*Part{r.part("store"), r.part("worker"), r.part("api")},
			Ready: func() { r.note("ready"); cancel() }, Stopping: func() { r.note("stopping") },
		}
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.seen, " "); got != "+store +worker +api ready stopping -api -worker -store" {
			t.Errorf("got %s", got)
		}
	})
}

func TestGroupWithAPartThatDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		g := Group{
			Parts: []*Part{r.part("a"), New("b", func(context.Context, func()) error { return errors.New("no") }), r.part("c")},
			Ready: func() { t.Error("ready") },
		}
		if err := g.Run(t.Context()); err == nil || err.Error() != "no" {
			t.Errorf("got %v", err)
		}
		if got := strings.Join(r.seen, " "); got != "+a -a" {
			t.Errorf("got %s", got)
		}
	})
}

func TestGroupWithAPartThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		end := make(chan struct{})
		g := Group{
			Parts: []*Part{r.part("a"), Loop("b", func(context.Context) error { <-end; return errors.New("lost") }), r.part("c")},
			Ready: func() { close(end) },
		}
		if err := g.Run(t.Context()); err == nil || err.Error() != "cannot go on: b has ended: lost" {
			t.Errorf("got %v", err)
		}
		if got := strings.Join(r.seen, " "); got != "+a +c -c -a" {
			t.Errorf("got %s", got)
		}
	})
}

// One that hangs takes no time from those before it, and is named.
func TestGroupWithAPartThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		release := make(chan struct{})
		defer close(release)
		ctx, cancel := context.WithCancel(t.Context())
		g := Group{
			Parts: []*Part{r.part("a"), Loop("stuck", func(context.Context) error { <-release; return nil })},
			Ready: cancel, StopTimeout: time.Second,
		}
		if err := g.Run(ctx); err == nil || !strings.Contains(err.Error(), "cannot stop stuck in time") {
			t.Errorf("got %v", err)
		}
		if got := strings.Join(r.seen, " "); got != "+a -a" {
			t.Errorf("got %s", got)
		}
	})
}

func TestHTTPEndsOpenRequests(t *testing.T) {
	before := runtime.NumGoroutine()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		close(arrived)
		<-r.Context().Done() // follows a log that does not end
	})}
	p := HTTP("api", l, server, 10*time.Millisecond)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	got := make(chan string, 1)
	go func() {
		res, err := client.Get("http://" + l.Addr().String())
		if err != nil {
			got <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		got <- string(body)
	}()
	<-arrived
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if body := <-got; body != "first\n" {
		t.Errorf("the client saw %q", body)
	}
	client.CloseIdleConnections()
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

func TestHTTPThatCannotServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := HTTP("api", l, &http.Server{}, time.Second)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Close()
	<-p.Done()
	if p.Err() == nil {
		t.Error("the end of the listener is no error")
	}
}
