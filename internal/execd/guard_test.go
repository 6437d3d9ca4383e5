package execd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func policy() Policy {
	return Policy{Defaults: run.DefaultLimits(), MaxLifetime: time.Hour}
}

// guarding runs a test with a guard whose time only the test moves.
func guarding(t *testing.T, p Policy, test func(t *testing.T, g *Guard, env *stub)) {
	synctest.Test(t, func(t *testing.T) {
		env := newStub()
		g := NewGuard(env, p, quiet())
		if err := g.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); g.Run(context.Background()) }()
		test(t, g, env)
		env.mu.Lock()
		clear(env.fail)
		env.mu.Unlock()
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := g.Close(t.Context()); err != nil {
			t.Errorf("second Close: %v", err)
		}
		<-done
		if len(env.left()) > 0 {
			t.Errorf("left: %v", env.left())
		}
	})
}

func spec(id string) execenv.Spec { return execenv.Spec{ID: id, Image: "i"} }

func create(t *testing.T, g *Guard, s execenv.Spec) execenv.Sandbox {
	t.Helper()
	sb, err := g.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func wantCode(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%s: got %v (%s), want %s", what, err, fault.CodeOf(err), code)
	}
}

func TestTheCeilingWinsAndShows(t *testing.T) {
	p := policy()
	p.Ceiling = run.Limits{MilliCPU: 500, MemoryBytes: 100 * run.MiB, PIDs: 20, DiskBytes: run.MiB, Inodes: 100, OutputBytes: 10, WallClock: time.Second}
	guarding(t, p, func(t *testing.T, g *Guard, env *stub) {
		big := spec("a")
		big.Limits = run.Ceiling()
		info, err := create(t, g, big).Info(t.Context())
		if err != nil || info.Limits != p.Ceiling || env.boxes["a"].spec.Limits != p.Ceiling {
			t.Errorf("limits are %+v, %v, want the ceiling", info.Limits, err)
		}
		create(t, g, big) // P1 still holds
		bigger := big
		bigger.Limits.PIDs++
		_, err = g.Create(t.Context(), bigger)
		wantCode(t, "another Spec that the ceiling makes equal", err, fault.Conflict)

		small := spec("b")
		small.Limits = run.Limits{PIDs: 17}
		want := small.Limits.Or(run.DefaultLimits()).Clamp(p.Ceiling)
		if info, _ := create(t, g, small).Info(t.Context()); info.Limits != want {
			t.Errorf("limits are %+v, want %+v", info.Limits, want)
		}
		bad := spec("c")
		bad.Limits = run.Limits{MemoryBytes: 1}
		_, err = g.Create(t.Context(), bad)
		wantCode(t, "a limit below the floor", err, fault.Invalid)
	})
}

// What nobody asked for and cannot be had is not promised; what was asked for is
// passed on, for the environment to refuse.
func TestDefaultsThatCannotBeEnforcedAreLeftOut(t *testing.T) {
	guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
		env.weak = true
		modest := spec("a")
		modest.Limits = run.Limits{}
		want := run.DefaultLimits()
		want.MilliCPU, want.MemoryBytes, want.PIDs = 0, 0, 0
		if info, err := create(t, g, modest).Info(t.Context()); err != nil || info.Limits != want {
			t.Errorf("limits are %+v, %v, want %+v", info.Limits, err, want)
		}
		insists := spec("b")
		insists.Limits = run.Limits{MemoryBytes: 100 * run.MiB}
		create(t, g, insists)
		if got := env.boxes["b"].spec.Limits.MemoryBytes; got != 100*run.MiB {
			t.Errorf("the environment was asked for %d bytes of memory", got)
		}
	})
}

func TestALifetimeEndsByTheServicesOwnClock(t *testing.T) {
	guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
		short, short2, long := spec("short"), spec("ended"), spec("long")
		short.Lifetime, short2.Lifetime, long.Lifetime = time.Minute, time.Minute, 100*time.Hour
		start := time.Now()
		sb := create(t, g, short)
		create(t, g, long)
		infos, _ := g.List(t.Context())
		if !infos[0].ExpiresAt.Equal(start.Add(time.Hour)) || !infos[1].ExpiresAt.Equal(start.Add(time.Minute)) {
			t.Errorf("they expire at %s and %s", infos[0].ExpiresAt, infos[1].ExpiresAt)
		}
		e, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		ended := create(t, g, short2)
		env.mu.Lock()
		env.boxes["ended"].state = execenv.StateEnded // as its environment should
		env.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, late := range []execenv.Sandbox{sb, ended} {
			_, err = late.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"x"}})
			wantCode(t, "Exec after the lifetime", err, fault.Gone)
		}
		time.Sleep(lifetimeGrace - 1)
		synctest.Wait()
		if len(env.left()) != 3 {
			t.Fatalf("left before the grace ended: %v", env.left())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if env.has("short") || !env.has("long") || !env.has("ended") {
			t.Errorf("left after the grace: %v", env.left())
		}
		if _, err := e.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(env.left()) != 0 {
			t.Errorf("left after an hour: %v", env.left())
		}
	})
}

// Of two who extend at once, the last in the environment counts, also when its call
// returns first.
func TestTheLastExtensionCounts(t *testing.T) {
	guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
		sb := create(t, g, spec("a"))
		set, goOn, first := make(chan struct{}), make(chan struct{}), make(chan error)
		env.extended = func(lifetime time.Duration) {
			if lifetime == time.Minute {
				close(set)
				<-goOn
			}
		}
		go func() { first <- sb.Extend(t.Context(), time.Minute) }()
		<-set
		if err := sb.Extend(t.Context(), 30*time.Minute); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"x"}}); err != nil || !env.has("a") {
			t.Errorf("it was extended to 30 minutes, and after 10: %v, left are %v", err, env.left())
		}
		time.Sleep(20*time.Minute + lifetimeGrace)
		synctest.Wait()
		if env.has("a") {
			t.Error("it lives on after the end of its time")
		}
	})
}

func TestAFailedDestroyIsTriedAgainLaterAndLater(t *testing.T) {
	guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
		create(t, g, spec("a"))
		env.setFail("a", true)
		wantCode(t, "Destroy", g.Destroy(t.Context(), "a"), fault.Internal)
		_, err := g.Create(t.Context(), spec("a"))
		wantCode(t, "Create of what is being destroyed", err, fault.Unavailable)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := env.destroyed["a"]; n < 10 || n > 30 { // 1, 2, 4 … 256 s, then every 5 min
			t.Errorf("tried %d times in an hour", n)
		}
		env.setFail("a", false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if len(env.left()) != 0 {
			t.Error("still there")
		}
		create(t, g, spec("a"))
		time.Sleep(2 * sweepEvery)
		synctest.Wait()
		if len(env.left()) != 1 {
			t.Error("the old sentence hit the new sandbox")
		}
	})
}

func TestWhatAnEarlierLifeLeftIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newStub()
		env.boxes["old"] = &stubBox{s: env, spec: spec("old"), at: time.Now().Add(-59 * time.Minute), execs: map[string]*stubExec{}}
		env.boxes["older"] = &stubBox{s: env, spec: spec("older"), at: time.Now().Add(-2 * time.Hour), execs: map[string]*stubExec{}}
		p := policy()
		p.MaxSandboxes = 2
		g := NewGuard(env, p, quiet())
		if err := g.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if env.has("older") || !env.has("old") {
			t.Errorf("left: %v", env.left())
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); g.Run(ctx) }()
		create(t, g, spec("a"))
		_, err := g.Create(t.Context(), spec("b"))
		wantCode(t, "Create beside an adopted one", err, fault.Exhausted)
		time.Sleep(time.Minute)
		synctest.Wait()
		if env.has("old") {
			t.Error("the adopted one outlived its lifetime")
		}
		cancel()
		<-done
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSandboxesAndCommandsAreCounted(t *testing.T) {
	p := policy()
	p.MaxSandboxes, p.MaxExecs = 2, 2
	guarding(t, p, func(t *testing.T, g *Guard, env *stub) {
		sb := create(t, g, spec("a"))
		create(t, g, spec("b"))
		create(t, g, spec("a"))
		_, err := g.Create(t.Context(), spec("c"))
		wantCode(t, "a third sandbox", err, fault.Exhausted)
		if err := g.Destroy(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		env.createErr = errors.New("broken")
		for range 5 {
			_, err = g.Create(t.Context(), spec("c"))
			wantCode(t, "broken Create", err, fault.Internal) // and takes no place
		}
		env.createErr = nil
		create(t, g, spec("c"))

		exec := func(id string) (execenv.Exec, error) {
			return sb.Exec(t.Context(), execenv.ExecSpec{ID: id, Argv: []string{"x"}})
		}
		one, _ := exec("one")
		_, _ = exec("")
		_, err = exec("")
		wantCode(t, "a third command", err, fault.Exhausted)
		if _, err := exec("one"); err != nil {
			t.Errorf("the same command again: %v", err)
		}
		_ = one.Kill(t.Context())
		synctest.Wait()
		if _, err := exec("three"); err != nil {
			t.Errorf("after one ended: %v", err)
		}
		if _, err := exec("one"); err != nil {
			t.Errorf("one that ended, again: %v", err)
		}
		_, err = exec("four")
		wantCode(t, "a third command", err, fault.Exhausted)
	})
}

func TestCloseEndsACreateThatIsRunning(t *testing.T) {
	guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
		env.onCreate = func(ctx context.Context) { <-ctx.Done() } // and then succeeds
		result := make(chan error, 1)
		go func() { _, err := g.Create(context.Background(), spec("a")); result <- err }()
		synctest.Wait()
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantCode(t, "Create", <-result, fault.Unavailable)
		_, err := g.Create(t.Context(), spec("b"))
		wantCode(t, "Create after Close", err, fault.Unavailable)
	})
}

// What is stuck may come loose as long as there is time; what nobody can reach is
// given up soon, unless it comes back.
func TestCloseGivesUpWhatIsAway(t *testing.T) {
	for name, tc := range map[string]struct {
		away, stuck bool
		backAfter   time.Duration
		least, most time.Duration
		left        bool
	}{
		"away":           {away: true, least: awayFor, most: 2 * awayFor, left: true},
		"back":           {away: true, backAfter: time.Second, most: awayFor},
		"stuck":          {stuck: true, least: 20 * time.Second, most: 21 * time.Second, left: true},
		"away and stuck": {away: true, backAfter: time.Second, stuck: true, least: 20 * time.Second, most: 21 * time.Second, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			guarding(t, policy(), func(t *testing.T, g *Guard, env *stub) {
				for _, id := range []string{"a", "b"} {
					if _, err := g.Create(t.Context(), spec(id)); err != nil {
						t.Fatal(err)
					}
				}
				setAway := func(away bool) {
					env.mu.Lock()
					defer env.mu.Unlock()
					env.away = away
				}
				setAway(tc.away)
				env.setFail("b", tc.stuck)
				if tc.backAfter > 0 {
					time.AfterFunc(tc.backAfter, func() { setAway(false) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				err := g.Close(ctx)
				if took := time.Since(began); (err != nil) != tc.left || took < tc.least || took > tc.most {
					t.Errorf("after %s: %v", took, err)
				}
				setAway(false)
				env.setFail("b", false)
			})
		})
	}
}

func TestCreateAndDestroyRace(t *testing.T) {
	p := policy()
	p.MaxSandboxes = 4
	env := newStub()
	g := NewGuard(env, p, quiet())
	go g.Run(context.Background())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := fmt.Sprintf("s%d", i%4)
			for range 200 {
				if sb, err := g.Create(t.Context(), spec(id)); err == nil {
					_, _ = sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"x"}})
				} else {
					t.Errorf("Create: %v", err)
				}
				if err := g.Destroy(t.Context(), id); err != nil {
					t.Errorf("Destroy: %v", err)
				}
			}
		})
	}
	all.Wait()
	if _, err := g.sweep(t.Context()); err != nil {
		t.Error(err)
	}
	g.mu.Lock()
	if len(g.boxes) != 0 || len(g.condemned) != 0 {
		t.Errorf("records left: %v, %v", g.boxes, g.condemned)
	}
	g.mu.Unlock()
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
