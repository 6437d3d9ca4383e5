package gvisor

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

type img string

func (i img) Resolve(string) (string, string, error) { return string(i), "sha256:x", nil }

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Config{StateDir: dir, Guest: "/work/main/bin/agentdock-guest", Images: img("/work/scratch/root.erofs")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	n := 10
	for i := range n {
		t0 := time.Now()
		id := fmt.Sprintf("s%d", i)
		sb, err := e.Create(ctx, execenv.Spec{ID: id, Image: "x", Limits: run.DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		t1 := time.Now()
		ex, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{"echo", "hi"}})
		if err != nil {
			t.Fatal(err)
		}
		var t2 time.Time
		ex.Output(ctx, 0, func(c execenv.Chunk) error { t2 = time.Now(); return nil })
		r, err := ex.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t3 := time.Now()
		var lat []time.Duration
		for range 5 {
			s := time.Now()
			ex, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{"true"}})
			if err != nil {
				t.Fatal(err)
			}
			ex.Wait(ctx)
			lat = append(lat, time.Since(s).Round(10*time.Microsecond))
		}
		t4 := time.Now()
		if err := e.Destroy(ctx, id); err != nil {
			t.Fatal(err)
		}
		t.Log("create", t1.Sub(t0), "first out", t2.Sub(t0), "exec", t3.Sub(t1), lat, "destroy", time.Since(t4), r.Outcome)
	}
	if argv := os.Getenv("SMOKE"); argv != "" {
		sb, err := e.Create(ctx, execenv.Spec{ID: "z", Image: "x", Limits: run.DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		ex, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{"bash", "-c", argv}})
		if err != nil {
			t.Fatal(err)
		}
		ex.Output(ctx, 0, func(c execenv.Chunk) error { os.Stdout.Write(c.Data); return nil })
		r, err := ex.Wait(ctx)
		fmt.Printf("%s %+v %v\n", r.Outcome, r, err)
	}
}
