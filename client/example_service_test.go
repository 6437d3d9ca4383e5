package client_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/worker"
)

// exampleService is a whole service for the examples: the API as it is, on a
// record in SQLite, and a worker. Only its sandboxes are in memory, where there
// are few programs (echo, cat, tee and the like). AGENTDOCK_URL and
// AGENTDOCK_API_KEY lead to it until it is closed.
func exampleService() (closeService func()) {
	files, err := os.MkdirTemp("", "example")
	must(err)
	hangs := time.AfterFunc(time.Minute, func() { panic("the example does not end") })
	ctx, stop := context.WithCancel(context.Background())
	p := &platform{address: "127.0.0.1:0"}
	must(p.open(ctx, files))
	must(p.serve(ctx))
	work, err := worker.New(worker.Config{Name: "example", Poll: 20 * time.Millisecond, Development: true}, worker.Deps{
		Store: p.record, Blobs: p.blobs, Log: slog.New(slog.DiscardHandler),
		Nodes: []worker.Node{{Name: "here", Dial: func(context.Context) (worker.Connection, error) { return local{p.env}, nil }}},
	})
	must(err)
	var working sync.WaitGroup
	working.Go(func() { must(work.Run(ctx)) })
	must(errors.Join(os.Setenv("AGENTDOCK_URL", "http://"+p.address), os.Setenv("AGENTDOCK_API_KEY", p.key)))
	return func() {
		hangs.Stop()
		stop()
		working.Wait()
		must(p.part.Stop(context.Background()))
		p.close()
		must(errors.Join(os.Unsetenv("AGENTDOCK_URL"), os.Unsetenv("AGENTDOCK_API_KEY"), os.RemoveAll(files)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
