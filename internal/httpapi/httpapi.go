// Package httpapi serves the use cases of package control over HTTP, as
// api/openapi.yaml says.
//
// A request goes through admit, which decides by the table of routes, then
// through generated code, which reads its parameters, to one of the handlers,
// which are a few lines each: they translate, and call one use case.
package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/service"
)

// Config is what an operator decides. Its zero fields are filled in.
type Config struct {
	Auth AuthMode
	Log  *slog.Logger
	// Registerer collects the metrics of this package, and Metrics serves all
	// there are. Without them, the package has a registry of its own.
	Registerer prometheus.Registerer
	Metrics    http.Handler
	// Around, if set, sees each request before this package and its answer
	// after; RouteOf names the route.
	Around func(http.Handler) http.Handler
	// Facade, if set, serves what it claims.
	Facade Facade
	// TLS, if set, has the certificate to serve with.
	TLS    *tls.Config
	Timing Timing
	// MaxLong and MaxLongPerTenant bound log streams, uploads and downloads at
	// once.
	MaxLong, MaxLongPerTenant int
}

// Timing is how long things may take.
type Timing struct {
	// Header bounds the head of a request, and Body its body; of a long one,
	// each piece.
	Header, Body time.Duration
	// Answer bounds what follows.
	Answer time.Duration
	// Idle is how long a connection without a request is kept.
	Idle time.Duration
	// Heartbeat is the pause between signs of life in a stream without output.
	Heartbeat time.Duration
	// Stall is how long a stream waits for a client that takes nothing.
	Stall time.Duration
	// Drain is how long requests may go on when the service stops.
	Drain time.Duration
}

func (c Config) orDefaults() Config {
	if c.Auth == "" {
		c.Auth = AuthAPIKey
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Registerer == nil {
		own := prometheus.NewRegistry()
		c.Registerer = own
		if c.Metrics == nil {
			c.Metrics = promhttp.HandlerFor(own, promhttp.HandlerOpts{})
		}
	}
	if c.Metrics == nil {
		c.Metrics = promhttp.Handler()
	}
	if c.MaxLong == 0 {
		c.MaxLong = 4000
	}
	if c.MaxLongPerTenant == 0 {
		c.MaxLongPerTenant = 200
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.Timing.Header, 10 * time.Second}, {&c.Timing.Body, 30 * time.Second}, {&c.Timing.Answer, 60 * time.Second},
		{&c.Timing.Idle, 2 * time.Minute}, {&c.Timing.Heartbeat, 15 * time.Second}, {&c.Timing.Stall, 15 * time.Minute},
		{&c.Timing.Drain, 20 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return c
}

// API is the handler of all requests.
type API struct {
	cfg     Config
	control *control.Control
	live    *live.Sandboxes // nil where there are none
	log     *slog.Logger
	metrics *metrics
	router  http.Handler
	// tenants limits by tenant, and strangers whoever has no key by address.
	tenants, strangers *limiters
	long               *slots

	drainOnce sync.Once
	draining  chan struct{}
}

// New makes the API over the use cases. Those of live sandboxes may be nil.
func New(cfg Config, c *control.Control, sandboxes *live.Sandboxes) (*API, error) {
	cfg = cfg.orDefaults()
	a := &API{
		cfg: cfg, control: c, live: sandboxes, log: cfg.Log, tenants: newLimiters(), strangers: newLimiters(),
		long:     &slots{used: map[string]int{}, perTenant: cfg.MaxLongPerTenant, of: cfg.MaxLong},
		draining: make(chan struct{}),
	}
	var err error
	if a.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("cannot register metrics: %w", err)
	}
	strict := NewStrictHandlerWithOptions(&handlers{API: a}, []StrictMiddlewareFunc{a.asAdmitted}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.badParameter, ResponseErrorHandlerFunc: a.fail,
	})
	a.router = HandlerWithOptions(strict, ChiServerOptions{BaseRouter: chi.NewRouter(), ErrorHandlerFunc: a.badParameter})
	return a, nil
}

// asAdmitted makes sure that what the router chose is what admit has decided
// about, and bounds the time of requests that are not meant to last.
func (a *API) asAdmitted(next StrictHandlerFunc, operation string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		x := exchangeOf(ctx)
		if x.route == nil || !strings.EqualFold(x.route.operation, operation) {
			return nil, errors.New("the router chose another operation than was admitted")
		}
		if x.route.pace == short {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.cfg.Timing.Body)
			defer cancel()
			return next(ctx, w, r, request)
		}
		if !a.long.take(x.caller.Tenant.ID) {
			refusal := refuse(api.ProblemCodeExhausted, "too many streams, uploads and downloads are open; end some")
			refusal.retry = exhaustedPause
			return nil, refusal
		}
		x.release = func() { a.long.give(x.caller.Tenant.ID) } // when it has been answered
		return next(ctx, w, r, request)
	}
}

// drain ends streams, each with a word that it can be resumed.
func (a *API) drain() { a.drainOnce.Do(func() { close(a.draining) }) }

// Part serves the API on a listener until it is told to stop.
func (a *API) Part(l net.Listener) (*service.Part, error) {
	if err := checkListener(a.cfg.Auth, l); err != nil {
		return nil, err
	}
	var handler http.Handler = a
	if a.cfg.Around != nil {
		handler = a.cfg.Around(a)
	}
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         a.cfg.TLS,
		ReadHeaderTimeout: a.cfg.Timing.Header,
		IdleTimeout:       a.cfg.Timing.Idle,
		// Each request sets its own deadline for writing; this one makes the
		// server forget that of the request before.
		WriteTimeout:   a.cfg.Timing.Body + a.cfg.Timing.Answer,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(a.drain)
	return service.HTTP("the API", l, server, a.cfg.Timing.Drain), nil
}
