package execd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/run"
)

// Config says where and under which policy to serve.
type Config struct {
	// Socket is the path of a unix socket; AllowedUIDs may use it besides
	// root and the service's own user.
	Socket      string
	AllowedUIDs []uint32
	// Listen is a TCP address (host:port), with mutual TLS only.
	Listen         string
	TLS            execrpc.TLSFiles
	AllowedClients []string

	Policy Policy
	// StopTimeout bounds how long stopping tries to destroy sandboxes. 0 is a
	// minute.
	StopTimeout time.Duration

	// Ready, if set, gets one line "ready" when calls are taken, and is closed.
	Ready io.WriteCloser
	// ExitWith, if set, stops the service when it reads end of file: the
	// process at the other end has gone. It is closed at the end.
	ExitWith io.ReadCloser

	Log *slog.Logger
}

// Validate says what cannot work before anything is started.
func (c Config) Validate() error {
	if c.Socket == "" && c.Listen == "" {
		return errors.New("cannot start: nowhere to listen; set " + Prefix + "SOCKET or " + Prefix + "LISTEN")
	}
	if c.Listen != "" && (c.TLS.Cert == "" || c.TLS.Key == "" || c.TLS.CA == "") {
		return errors.New("cannot start: TCP needs mutual TLS; set " + Prefix + "TLS_CERT, " + Prefix + "TLS_KEY and " + Prefix + "TLS_CLIENT_CA")
	}
	if c.Policy.MaxLifetime <= 0 {
		return errors.New("cannot start: the maximum lifetime is not positive; set " + Prefix + "MAX_LIFETIME")
	}
	if err := c.Policy.Ceiling.Or(run.Floor()).Validate(); err != nil {
		return fmt.Errorf("cannot start: a ceiling leaves no room for a sandbox: %w", err)
	}
	return nil
}

// lastAnswers is how long calls that are still open may take to tell their
// callers how their commands ended, once every sandbox is destroyed.
const lastAnswers = 3 * time.Second

// Run serves env until ctx ends, and then stops: it takes nothing new, destroys
// every sandbox, tells those who wait how their commands ended, and closes. It
// leaves no goroutine and no socket file behind, and returns nil only if no
// sandbox is left either.
func Run(ctx context.Context, c Config, env execenv.Environment) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.ExitWith != nil {
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			_, _ = io.Copy(io.Discard, c.ExitWith)
			stop()
		}()
		defer func() {
			_ = c.ExitWith.Close()
			<-watched
		}()
	}
	if c.Ready != nil {
		defer c.Ready.Close()
	}
	if err := c.Validate(); err != nil {
		return err
	}
	guard := NewGuard(env, c.Policy, c.Log)
	s := &serving{log: c.Log, failed: make(chan error, 2)}
	s.calls, s.endCalls = context.WithCancel(context.Background())
	defer s.endCalls()
	if err := s.listen(c, execrpc.NewServer(guard, c.Log)); err != nil {
		s.refuse()
		s.close()
		guard.release()
		return err
	}
	// Only now: a second service on one socket must not sweep for the first.
	if err := guard.Adopt(ctx); err != nil {
		s.refuse()
		s.close()
		guard.release()
		return fmt.Errorf("cannot start: %w", err)
	}
	var sweeper sync.WaitGroup
	sweeper.Go(func() { guard.Run(ctx) })
	if c.Ready != nil {
		_, err := io.WriteString(c.Ready, "ready\n")
		if err != nil {
			c.Log.Warn("cannot say that the service is ready", "error", err)
		}
		_ = c.Ready.Close()
	}
	c.Log.Info("serving", "socket", c.Socket, "listen", c.Listen, "environment", env.Capabilities().Name)

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-s.failed:
	}
	c.Log.Info("stopping")
	stop()
	s.refuse()
	left := stopGuard(guard, c)
	s.close()
	sweeper.Wait()
	c.Log.Info("stopped")
	return errors.Join(failed, left)
}

func stopGuard(guard *Guard, c Config) error {
	timeout := c.StopTimeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return guard.Close(ctx)
}

// serving is the listening side of Run.
type serving struct {
	log      *slog.Logger
	calls    context.Context // of every call
	endCalls context.CancelFunc
	servers  []*http.Server
	running  sync.WaitGroup // listeners
	handlers sync.WaitGroup // calls
	failed   chan error
}

func (s *serving) listen(c Config, calls http.Handler) error {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		calls.ServeHTTP(w, r)
	})
	if c.Socket != "" {
		l, err := execrpc.ListenUnix(c.Socket, c.AllowedUIDs, s.log)
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		srv := execrpc.NewHTTPServer(handler, nil, s.log)
		s.serve(srv, func() error { return srv.Serve(l) })
	}
	if c.Listen != "" {
		conf, err := execrpc.ServerTLS(c.TLS, c.AllowedClients)
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			return fmt.Errorf("cannot start: cannot listen on %s: %w", c.Listen, err)
		}
		srv := execrpc.NewHTTPServer(handler, conf, s.log)
		s.serve(srv, func() error { return srv.ServeTLS(l, "", "") })
	}
	return nil
}

func (s *serving) serve(srv *http.Server, serve func() error) {
	srv.BaseContext = func(net.Listener) context.Context { return s.calls }
	s.servers = append(s.servers, srv)
	s.running.Go(func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("cannot go on serving: %w", err)
		}
	})
}

// refuse takes no new connections and lets clients know. Calls go on.
func (s *serving) refuse() {
	for _, srv := range s.servers {
		s.running.Go(func() { _ = srv.Shutdown(s.calls) })
	}
}

// close gives open calls a moment to end by themselves, then ends them.
func (s *serving) close() {
	quiet := make(chan struct{})
	go func() { defer close(quiet); s.running.Wait() }()
	select {
	case <-quiet:
	case <-time.After(lastAnswers):
	}
	s.endCalls()
	for _, srv := range s.servers {
		_ = srv.Close()
	}
	<-quiet
	s.handlers.Wait()
}
