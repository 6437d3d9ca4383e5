package e2b

import (
	"context"
	"crypto/rand"
	"path"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/filesystempb"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/livefiles"
)

const (
	// maxWatchers bounds the watchers of a sandbox that are asked for events,
	// and maxEvents what each keeps.
	maxWatchers = 16
	maxEvents   = 4096
	// unasked is how long a watcher goes on that nobody asks.
	unasked = 10 * time.Minute
)

// WatchDir sends what happens in a directory for as long as its client listens.
func (s *filesystem) WatchDir(ctx context.Context, req *connect.Request[pb.WatchDirRequest], stream *connect.ServerStream[pb.WatchDirResponse]) error {
	x := exchangeOf(ctx)
	if err := x.gate.Hold(x.caller); err != nil {
		return asConnect(err)
	}
	files, err := x.files()
	if err != nil {
		return asConnect(err)
	}
	alive := keepAlive(req.Header(), stream.Send, &pb.WatchDirResponse{
		Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}},
	})
	defer alive.stop()
	dir := inHome(req.Msg.GetPath())
	err = files.Watch(ctx, dir, req.Msg.GetRecursive(), func() error {
		return alive.send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}})
	}, func(e livefiles.Event) error {
		event := fileEvent(dir, e)
		if event == nil {
			return nil
		}
		return alive.send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: event}})
	})
	return asConnect(err)
}

// fileEvent is an event as clients know it: they have none for events that were
// lost.
func fileEvent(dir string, e livefiles.Event) *pb.FilesystemEvent {
	kind, ok := eventTypes[e.Kind]
	if !ok {
		return nil
	}
	top, err := livefiles.Resolve(dir)
	if err != nil {
		return nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(e.Path, path.Clean(top)), "/")
	return &pb.FilesystemEvent{Name: text(name), Type: kind}
}

var eventTypes = map[filewire.EventKind]pb.EventType{
	filewire.Created: pb.EventType_EVENT_TYPE_CREATE, filewire.Written: pb.EventType_EVENT_TYPE_WRITE,
	filewire.Removed: pb.EventType_EVENT_TYPE_REMOVE, filewire.Renamed: pb.EventType_EVENT_TYPE_RENAME,
	filewire.Changed: pb.EventType_EVENT_TYPE_CHMOD,
}

// watchers are watches whose events are fetched, by sandbox and id. They are of
// this process: another one does not know them.
type watchers struct {
	mu  sync.Mutex
	all map[string]map[string]*watcher
}

type watcher struct {
	stop   context.CancelFunc
	idle   *time.Timer
	mu     sync.Mutex
	events []*pb.FilesystemEvent
}

func (w *watcher) add(e *pb.FilesystemEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e != nil && len(w.events) < maxEvents {
		w.events = append(w.events, e)
	}
}

func (w *watcher) take() []*pb.FilesystemEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.events
	w.events = nil
	return taken
}

func (s *filesystem) CreateWatcher(ctx context.Context, req *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	x := exchangeOf(ctx)
	files, err := x.files()
	if err != nil {
		return nil, asConnect(err)
	}
	id, sandbox := rand.Text(), x.handle.Record.ID
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watcher{stop: stop, idle: time.AfterFunc(unasked, stop)}
	if err := s.f.watchers.put(sandbox, id, w); err != nil {
		w.end()
		return nil, asConnect(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	dir := inHome(req.Msg.GetPath())
	go func() {
		ended <- files.Watch(watching, dir, req.Msg.GetRecursive(), func() error { close(ready); return nil },
			func(e livefiles.Event) error { w.add(fileEvent(dir, e)); return nil })
		s.f.watchers.remove(sandbox, id)
	}()
	select {
	case <-ready:
		return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	w.end()
	return nil, asConnect(err)
}

func (s *filesystem) GetWatcherEvents(ctx context.Context, req *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	w := s.f.watchers.get(exchangeOf(ctx).handle.Record.ID, req.Msg.GetWatcherId())
	if w == nil {
		return nil, asConnect(fault.New(fault.NotFound, "there is no such watcher"))
	}
	w.idle.Reset(unasked)
	return connect.NewResponse(&pb.GetWatcherEventsResponse{Events: w.take()}), nil
}

func (s *filesystem) RemoveWatcher(ctx context.Context, req *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	if !s.f.watchers.remove(exchangeOf(ctx).handle.Record.ID, req.Msg.GetWatcherId()) {
		return nil, asConnect(fault.New(fault.NotFound, "there is no such watcher"))
	}
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}

func (w *watcher) end() {
	w.idle.Stop()
	w.stop()
}

func (ws *watchers) put(sandbox, id string, w *watcher) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all[sandbox]) >= maxWatchers {
		return fault.New(fault.Exhausted, "the sandbox has %d watchers; remove one", maxWatchers)
	}
	if ws.all == nil {
		ws.all = map[string]map[string]*watcher{}
	}
	if ws.all[sandbox] == nil {
		ws.all[sandbox] = map[string]*watcher{}
	}
	ws.all[sandbox][id] = w
	return nil
}

func (ws *watchers) get(sandbox, id string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.all[sandbox][id]
}

func (ws *watchers) remove(sandbox, id string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w, ok := ws.all[sandbox][id]
	if ok {
		w.end()
		delete(ws.all[sandbox], id)
		if len(ws.all[sandbox]) == 0 {
			delete(ws.all, sandbox)
		}
	}
	return ok
}

// forget ends all watchers of a sandbox.
func (ws *watchers) forget(sandbox string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all[sandbox] {
		w.end()
	}
	delete(ws.all, sandbox)
}
