package livefiles_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
)

// watching is a watch that has begun.
type watching struct {
	w      *world
	events chan livefiles.Event
	ended  chan error
	stop   context.CancelFunc
}

func (w *world) watch(dir string, recursive bool) *watching {
	w.Helper()
	ctx, cancel := context.WithCancel(w.ctx())
	w.Cleanup(cancel)
	x := &watching{w: w, events: make(chan livefiles.Event), ended: make(chan error, 1), stop: cancel}
	ready := make(chan struct{})
	go func() {
		x.ended <- w.Watch(ctx, dir, recursive, func() error { close(ready); return nil }, func(e livefiles.Event) error {
			select {
			case x.events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-ready:
	case err := <-x.ended:
		w.Fatalf("Watch: %v", err)
	}
	return x
}

// await reads events up to the one that is wanted.
func (x *watching) await(kind filewire.EventKind, path string) (seen []livefiles.Event) {
	x.w.Helper()
	ctx := x.w.ctx()
	for {
		select {
		case e := <-x.events:
			seen = append(seen, e)
			if e.Kind == kind && (path == "" || e.Path == path) {
				return seen
			}
		case err := <-x.ended:
			x.w.Fatalf("waiting for %s %q: the watch ended: %v; seen: %v", kind, path, err, seen)
		case <-ctx.Done():
			x.w.Fatalf("waiting for %s %q: seen: %v", kind, path, seen)
		}
	}
}

// end takes what still comes, and returns why the watch ended.
func (x *watching) end() error {
	for {
		select {
		case <-x.events:
		case err := <-x.ended:
			return err
		}
	}
}

func (x *watching) close() {
	x.w.Helper()
	x.stop()
	if err := x.end(); !fault.Is(err, fault.Unavailable) && !errors.Is(err, context.Canceled) {
		x.w.Errorf("the end of a watch: %v", err)
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t, nil)
	w.write("watched/below/old", "")
	flat, deep := w.watch("watched", false), w.watch("watched", true)
	w.probe("write", "/workspace/watched/new", "x")
	for _, x := range []*watching{flat, deep} {
		x.await(filewire.Created, "/workspace/watched/new")
		x.await(filewire.Written, "/workspace/watched/new")
	}
	w.probe("write", "/workspace/watched/below/deep", "x")
	deep.await(filewire.Created, "/workspace/watched/below/deep")
	// A directory that is made while it is watched, and what comes into it at once.
	w.write("watched/later/on/file", "x")
	deep.await(filewire.Created, "/workspace/watched/later/on/file")
	if _, err := w.Move(w.ctx(), "watched/later", "watched/renamed"); err != nil {
		t.Fatal(err)
	}
	deep.await(filewire.Renamed, "/workspace/watched/later")
	deep.await(filewire.Created, "/workspace/watched/renamed")
	w.probe("write", "/workspace/watched/renamed/on/again", "x")
	deep.await(filewire.Created, "/workspace/watched/renamed/on/again")
	w.probe("remove", "/workspace/watched/renamed/on/again")
	deep.await(filewire.Removed, "/workspace/watched/renamed/on/again")
	seen := flat.await(filewire.Created, "/workspace/watched/renamed")
	if slices.ContainsFunc(seen, func(e livefiles.Event) bool { return e.Path == "/workspace/watched/below/deep" }) {
		t.Errorf("a watch of one directory saw what is below it: %v", seen)
	}
	flat.close()
	if err := w.Remove(w.ctx(), "watched"); err != nil {
		t.Fatal(err)
	}
	w.wantCode("the directory is gone", deep.end(), fault.NotFound)
}

func TestWatchRefuses(t *testing.T) {
	w := newWorld(t, nil)
	w.write("file", "")
	for path, code := range map[string]fault.Code{"none": fault.NotFound, "file": fault.Invalid, "../x": fault.Invalid} {
		err := w.Watch(w.ctx(), path, true, func() error { t.Errorf("%s: ready", path); return nil }, nil)
		w.wantCode(path, err, code)
	}
}

// TestWatchOverflows: more happens than is handed out, and that is said.
func TestWatchOverflows(t *testing.T) {
	w := newWorld(t, func(l *run.Limits) { l.OutputBytes = 16 << 10 })
	if _, err := w.MakeDir(w.ctx(), "busy"); err != nil {
		t.Fatal(err)
	}
	x := w.watch("busy", false)
	w.probe("touch", "/workspace/busy", "1000")
	x.await(filewire.Overflow, "/workspace/busy")
	// It goes on after that.
	w.probe("write", "/workspace/busy/last", "x")
	x.await(filewire.Created, "/workspace/busy/last")
	x.close()
}
