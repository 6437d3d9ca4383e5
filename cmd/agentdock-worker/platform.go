package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/agentdock/agentdock/internal/backends"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/telemetry"
	"github.com/agentdock/agentdock/internal/worker"
)

// platform is what the process has opened.
type platform struct {
	settings  settings.Worker
	telemetry *telemetry.Telemetry
	log       *slog.Logger
	backends  *backends.Backends
	record    store.Store // of the backends, with telemetry
	worker    *worker.Worker
}

func open(ctx context.Context, s settings.Worker, t *telemetry.Telemetry, log *slog.Logger) (_ *platform, err error) {
	p := &platform{settings: s, telemetry: t, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.backends, err = backends.Open(ctx, s.Record); err != nil {
		return nil, err
	}
	p.record = t.Store(p.backends.Store)
	key, err := receipt.LoadOrCreateKey(s.SigningKeyFile)
	if err != nil {
		return nil, err
	}
	signer, err := receipt.NewSigner(key)
	if err != nil {
		return nil, err
	}
	repositories, err := checkout.Open(s.Checkout, "agentdock/worker")
	if err != nil {
		return nil, err
	}
	nodes, err := nodes(s, t)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	p.worker, err = worker.New(worker.Config{
		Name: cmp.Or(s.Name, host), Concurrency: s.Concurrency, Lease: s.Lease, Drain: s.Drain,
		Retention: s.Retention, UploadRetention: s.UploadRetention, Development: s.Development(),
	}, worker.Deps{
		Store: p.record, Queue: p.backends.Queue, Blobs: p.backends.Blobs, Nodes: nodes, Repositories: repositories, Signer: signer, Log: log,
	})
	return p, err
}

// nodes are the execution services, each dialled anew for each job: one that was
// restarted may have become something else.
func nodes(s settings.Worker, t *telemetry.Telemetry) ([]worker.Node, error) {
	var all []worker.Node
	for _, e := range s.Execds {
		dial, err := execrpc.Dialer(e.Socket, e.Address, execrpc.TLSFiles{Cert: s.ExecdTLSCert, Key: s.ExecdTLSKey, CA: s.ExecdTLSCA})
		if err != nil {
			return nil, err
		}
		all = append(all, worker.Node{Name: e.Name, Dial: func(ctx context.Context) (worker.Connection, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			if name := c.Capabilities().Name; name != s.Runtime.Runtime {
				c.Close()
				return nil, fault.New(fault.Denied, "execution service %s runs %q, and SANDBOX_RUNTIME is %s", e.Name, name, s.Runtime.Runtime)
			}
			return t.Environment(e.Name, c), nil
		}})
		t.Metrics.Sandboxes(e.Name, func(ctx context.Context) (int, error) {
			c, err := dial(ctx)
			if err != nil {
				return 0, err
			}
			defer c.Close()
			infos, err := c.List(ctx)
			return len(infos), err
		})
	}
	return all, nil
}

func (p *platform) close() error {
	if p.backends == nil {
		return nil
	}
	return p.backends.Close()
}

func work(ctx context.Context, p *platform) error {
	parts, metrics := []*service.Part{}, ""
	if p.settings.Listen != "" {
		l, err := net.Listen("tcp", p.settings.Listen)
		if err != nil {
			return fmt.Errorf("cannot listen on %s: %w; set AGENTDOCK_WORKER_LISTEN to another address", p.settings.Listen, err)
		}
		metrics = l.Addr().String()
		parts = append(parts, service.HTTP("metrics", l, &http.Server{
			Handler: p.endpoints(), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		}, time.Second))
	}
	parts = append(parts, service.Loop("the worker", p.worker.Run))
	return service.Group{
		Parts: parts, StopTimeout: p.settings.Drain + time.Minute,
		Ready: func() {
			p.log.Info("working", "concurrency", p.settings.Concurrency, "execds", len(p.settings.Execds), "metrics", metrics)
		},
		Stopping: func() { p.log.Info("stopping", "drain", p.settings.Drain.String()) },
	}.Run(ctx)
}

// endpoints are for whoever watches the worker. They hold nothing of a tenant.
func (p *platform) endpoints() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.telemetry.Metrics.Handler(p.log))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if err := errors.Join(p.record.Ping(ctx), p.backends.Blobs.Ping(ctx), p.worker.Refused(ctx)); err != nil {
			p.log.WarnContext(ctx, "not ready", "error", err)
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
