package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// owned are the sandboxes that a session has made and that end with it.
type owned struct {
	mu  sync.Mutex
	ids []string
}

func (o *owned) add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = append(o.ids, id)
}

func (o *owned) remove(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = slices.DeleteFunc(o.ids, func(one string) bool { return one == id })
}

func (o *owned) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := o.ids
	o.ids = nil
	return ids
}

// Stdio serves one session, until in ends or ctx does. Then the commands that
// still run are killed, and so are the sandboxes that the session has made,
// unless they were to be kept.
func Stdio(ctx context.Context, cfg Config, in io.ReadCloser, out io.WriteCloser) error {
	return serveSession(ctx, cfg, &mcp.IOTransport{Reader: in, Writer: out})
}

func serveSession(ctx context.Context, cfg Config, transport mcp.Transport) error {
	s := newServer(cfg, &owned{})
	session, err := s.mcp.Connect(ctx, transport, nil)
	if err != nil {
		return fmt.Errorf("cannot begin the session: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Wait() }()
	select {
	case err = <-ended:
		s.calls.stop()
	case <-ctx.Done():
		s.calls.stop() // a session that is closed waits for its calls
		err = session.Close()
		<-ended //nolint:errcheck // how it ended is what Close has said
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, s.killOwned())
}

// killOwned ends what the session has made, at once for all.
func (s *Server) killOwned() error {
	ids := s.owned.take()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killFor)
	defer cancel()
	c, err := s.cfg.Dial(s.cfg.Key)
	if err != nil {
		return err
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			if _, err := c.KillSandbox(ctx, id); err != nil {
				errs[i] = fmt.Errorf("cannot end sandbox %s: %w; it ends when its time to live is over", id, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
