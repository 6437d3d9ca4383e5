// Package allinone is the whole platform on one machine, as agentdock up starts
// it: API and worker in this process, with the record in a file, artifacts in a
// directory and a queue in memory; the execution service is a process of its own
// with an environment of its own, as everywhere (docs/adr/0002).
//
// It is the one place outside cmd that knows adapters: the command line reaches
// the record through it and nothing else.
package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/compat/e2b"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/enginesocket"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/telemetry"
	"github.com/agentdock/agentdock/internal/worker"
)

// node is the name that jobs have on record for the execution service. It is
// always the same, so a job of an earlier start is looked for where it was, and
// is found to be lost.
const node = "local"

// Config says where everything is.
type Config struct {
	// Listen is the address of the API, Data the directory for all that lasts.
	Listen, Data string
	// ImageDir is the image store.
	ImageDir  string
	Settings  settings.Up
	Log       *slog.Logger
	Telemetry *telemetry.Telemetry
	// Hidden is told of sockets of container engines that were taken out of
	// sight.
	Hidden func(sockets []string)
	// Say is told what is being done while the default image is made.
	Say func(what string)
	// Phase is told what begins, and the function it returns that it ended.
	Phase func(what string) (ended func())
	// Ready is called when requests are taken, Stopping when that is over.
	Ready    func(Started)
	Stopping func()
}

// Started is what a user needs to know.
type Started struct {
	URL string
	// Key is a new key with every scope. It is shown once; empty if there was
	// one, or none is asked for.
	Key string
}

// platform is what Run has opened.
type platform struct {
	cfg     Config
	record  store.Store
	blobs   *dir.Store
	queue   *memory.Queue
	signer  *receipt.Signer
	control *control.Control
	live    *live.Sandboxes
	key     string
	l       net.Listener
}

// Run runs the platform until ctx ends. What takes long or may be refused comes
// first, so that a second start on the same directory or address disturbs
// nothing. When it returns, nothing of it runs, and what it was doing is on
// record. The process must have a mount namespace of its own, in which container
// engines are hidden.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := hideEngines(cfg.Hidden); err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	if err := enginesocket.Here().Refuse(); err != nil {
		return err
	}
	p := &platform{cfg: cfg}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(ctx); err != nil {
		return err
	}
	// The images of the development fallback are its daemon's, which only the
	// execution service may ask.
	if !cfg.Settings.Development() {
		if err := ensureImage(ctx, cfg.ImageDir, cfg.Settings.Image, cfg.Say); err != nil {
			return err
		}
	}
	execd := newExecd(cfg)
	worker, err := p.worker(execd)
	if err != nil {
		return err
	}
	if p.live, err = p.sandboxes(execd); err != nil {
		return err
	}
	api, err := p.api()
	if err != nil {
		return err
	}
	address := reachable(p.l.Addr())
	p.l = nil // the API's from here on
	group := service.Group{
		Parts: []*service.Part{
			// The API ends after the worker: whoever follows a job that is let go on
			// sees its end.
			watchEngines(cfg.Hidden), execd.part(),
			service.Loop("live sandboxes", p.live.Run), api, service.Loop("the worker", worker.Run),
		},
		StopTimeout: cfg.Settings.Drain + time.Minute,
		Ready: func() {
			cfg.Ready(Started{URL: "http://" + address, Key: p.key})
		},
		Stopping: cfg.Stopping,
	}
	return group.Run(ctx)
}

// reachable is an address for a user of this machine: one that stands for all of
// them is reached by one of them.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}

// open opens what lasts.
func (p *platform) open(ctx context.Context) (err error) {
	cfg := p.cfg
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w", err)
	}
	record, err := sqlite.Open(ctx, filepath.Join(cfg.Data, "record.db"))
	if err != nil {
		return err
	}
	p.record = cfg.Telemetry.Store(record)
	if p.blobs, err = dir.New(filepath.Join(cfg.Data, "artifacts")); err != nil {
		return err
	}
	p.queue = memory.New()
	key, err := receipt.LoadOrCreateKey(filepath.Join(cfg.Data, "signing-key.pem"))
	if err != nil {
		return err
	}
	if p.signer, err = receipt.NewSigner(key); err != nil {
		return err
	}
	pem, err := receipt.EncodePublicKey(p.signer.Public())
	if err != nil {
		return err
	}
	if p.l, err = httpapi.Listen(httpapi.AuthMode(cfg.Settings.Mode), cfg.Listen); err != nil {
		return err
	}
	p.control, err = control.New(control.Config{
		Defaults: cfg.Settings.Limits(), Open: cfg.Settings.Development(), Development: cfg.Settings.Development(), Image: cfg.Settings.Image,
		ReceiptKeys: []control.ReceiptKey{{ID: p.signer.KeyID(), Algorithm: "ed25519", PEM: string(pem)}},
	}, p.record, p.queue, p.blobs, cfg.Log)
	if err != nil {
		return err
	}
	if cfg.Settings.Mode == settings.AuthAPIKey {
		p.key, err = p.control.FirstKey(ctx)
	}
	return err
}

func (p *platform) close() error {
	var errs []error
	if p.l != nil {
		errs = append(errs, p.l.Close())
	}
	if p.queue != nil {
		errs = append(errs, p.queue.Close())
	}
	if p.record != nil {
		errs = append(errs, p.record.Close())
	}
	return errors.Join(errs...)
}

func (p *platform) api() (*service.Part, error) {
	t := p.cfg.Telemetry
	t.Metrics.Queue(p.record)
	api, err := httpapi.New(httpapi.Config{
		Auth: httpapi.AuthMode(p.cfg.Settings.Mode), Log: p.cfg.Log,
		Registerer: t.Metrics.Registry(), Metrics: t.Metrics.Handler(p.cfg.Log),
		Around: func(next http.Handler) http.Handler { return t.HTTP(next, httpapi.RouteOf) },
		Facade: e2b.New(e2b.Config{Log: p.cfg.Log}, p.live),
	}, p.control, p.live)
	if err != nil {
		return nil, err
	}
	return api.Part(p.l)
}

func (p *platform) sandboxes(execd *execd) (*live.Sandboxes, error) {
	s := p.cfg.Settings
	return live.New(live.Config{
		Defaults: live.Limits(s.Limits()), Image: s.Image, Open: s.Development(), Development: s.Development(),
	}, p.record,
		[]live.Node{{Name: node, Dial: func(ctx context.Context) (live.Connection, error) {
			c, err := execd.dial(ctx)
			if err != nil {
				return nil, err
			}
			return p.cfg.Telemetry.Environment(node, c), nil
		}}}, p.control.Audit, p.cfg.Log)
}

func (p *platform) worker(execd *execd) (*worker.Worker, error) {
	s, t := p.cfg.Settings, p.cfg.Telemetry
	repositories, err := checkout.Open(s.Checkout, "agentdock")
	if err != nil {
		return nil, err
	}
	t.Metrics.Sandboxes(node, execd.count)
	return worker.New(worker.Config{
		Name: node, Concurrency: s.Concurrency, Lease: s.Lease, Drain: s.Drain,
		Retention: s.Retention, UploadRetention: s.UploadRetention,
		// The execution service ends with this process, and sandboxes with it.
		Sole: true, Development: s.Development(),
	}, worker.Deps{
		Store: p.record, Queue: p.queue, Blobs: p.blobs, Signer: p.signer, Repositories: repositories, Log: p.cfg.Log,
		Nodes: []worker.Node{{Name: node, Dial: func(ctx context.Context) (worker.Connection, error) {
			c, err := execd.dial(ctx)
			if err != nil {
				return nil, err
			}
			return t.Environment(node, c), nil
		}}},
	})
}
