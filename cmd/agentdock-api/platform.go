package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/agentdock/agentdock/internal/backends"
	"github.com/agentdock/agentdock/internal/compat/e2b"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/telemetry"
)

// platform is what the process has opened.
type platform struct {
	settings  settings.API
	telemetry *telemetry.Telemetry
	log       *slog.Logger
	backends  *backends.Backends
	record    store.Store // of the backends, with telemetry
	control   *control.Control
	live      *live.Sandboxes // nil where no execution service is named
}

// connector opens what a command needs.
type connector func(context.Context, settings.Record) (*backends.Backends, error)

// open connects to what there has to be.
func open(ctx context.Context, s settings.API, connect connector, t *telemetry.Telemetry, log *slog.Logger) (_ *platform, err error) {
	p := &platform{settings: s, telemetry: t, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.backends, err = connect(ctx, s.Record); err != nil {
		return nil, err
	}
	p.record = t.Store(p.backends.Store)
	keys, err := receiptKeys(s.ReceiptKeys)
	if err != nil {
		return nil, err
	}
	p.control, err = control.New(control.Config{Defaults: s.Limits(), Open: s.Development(), Development: s.Development(), Image: s.Image, ReceiptKeys: keys}, p.record, p.backends.Queue, p.backends.Blobs, log)
	if err != nil {
		return nil, err
	}
	p.live, err = liveSandboxes(p)
	return p, err
}

func liveSandboxes(p *platform) (*live.Sandboxes, error) {
	s := p.settings
	if len(s.Execds) == 0 {
		return nil, nil
	}
	var nodes []live.Node
	for _, e := range s.Execds {
		dial, err := execrpc.Dialer(e.Socket, e.Address, execrpc.TLSFiles{Cert: s.ExecdTLSCert, Key: s.ExecdTLSKey, CA: s.ExecdTLSCA})
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, live.Node{Name: e.Name, Dial: func(ctx context.Context) (live.Connection, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, err
			}
			return p.telemetry.Environment(e.Name, c), nil
		}})
	}
	return live.New(live.Config{Defaults: live.Limits(s.Limits()), Image: s.Image, Open: s.Development(), Development: s.Development()},
		p.record, nodes, p.control.Audit, p.log)
}

func receiptKeys(path string) ([]control.ReceiptKey, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read AGENTDOCK_RECEIPT_KEYS_FILE: %w", err)
	}
	public, err := receipt.ParsePublicKeys(data)
	if err != nil {
		return nil, fmt.Errorf("cannot read AGENTDOCK_RECEIPT_KEYS_FILE: %w", err)
	}
	var keys []control.ReceiptKey
	for _, k := range public {
		id, err := receipt.KeyID(k)
		if err != nil {
			return nil, err
		}
		pem, err := receipt.EncodePublicKey(k)
		if err != nil {
			return nil, err
		}
		keys = append(keys, control.ReceiptKey{ID: id, Algorithm: "ed25519", PEM: string(pem)})
	}
	return keys, nil
}

func (p *platform) close() error {
	if p.backends == nil {
		return nil
	}
	return p.backends.Close()
}

// migrate has nothing left to do: opening the record brings it up to date.
func migrate(context.Context, *platform, io.Writer) error { return nil }

// bootstrap prints the first key, and is an error when there is one: a second
// call must not look as if it had made another.
func bootstrap(ctx context.Context, p *platform, stdout io.Writer) error {
	secret, err := p.control.FirstKey(ctx)
	if err != nil {
		return err
	}
	if secret == "" {
		return errors.New("cannot make the first key: there is one; revoke it with agentdock admin key revoke, or use it to make others")
	}
	_, err = fmt.Fprintln(stdout, secret)
	return err
}

func serve(ctx context.Context, p *platform, _ io.Writer) error {
	s, t := p.settings, p.telemetry
	mode := httpapi.AuthMode(s.Mode)
	l, err := httpapi.Listen(mode, s.Listen)
	if err != nil {
		return err
	}
	conf, err := serverTLS(s)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.Metrics.Queue(p.record)
	config := httpapi.Config{
		Auth: mode, Log: p.log, TLS: conf,
		Registerer: t.Metrics.Registry(), Metrics: t.Metrics.Handler(p.log),
		Around: func(next http.Handler) http.Handler { return t.HTTP(next, httpapi.RouteOf) },
	}
	if p.live != nil {
		config.Facade = e2b.New(e2b.Config{Log: p.log}, p.live)
	}
	api, err := httpapi.New(config, p.control, p.live)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	part, err := api.Part(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	parts := []*service.Part{part}
	if p.live != nil {
		parts = []*service.Part{service.Loop("live sandboxes", p.live.Run), part}
	}
	return service.Group{
		Parts:    parts,
		Ready:    func() { p.log.Info("serving", "listen", l.Addr().String(), "tls", conf != nil, "auth", s.Mode) },
		Stopping: func() { p.log.Info("stopping") },
	}.Run(ctx)
}

func serverTLS(s settings.API) (*tls.Config, error) {
	if s.TLSCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("cannot load the TLS certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}, nil
}
