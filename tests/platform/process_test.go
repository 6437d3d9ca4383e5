package platform

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/blob/s3"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/queue/redis"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/worker"
)

// roleVariable tells this test binary which process to be, as JSON. The
// production programs wait half a minute where these wait seconds, so that
// what takes several leases can be tried many times; the parts are the same.
const roleVariable = "PLATFORM_TEST_ROLE"

// lease is how long a worker may be silent.
const lease = 2 * time.Second

// role is which process to be, and where the others are.
type role struct {
	// Name is "api", or that of a worker.
	Name               string
	Listen             string
	DSN, Redis, Socket string
	Key                string
	// Blobs is a directory; if empty, S3 has them.
	Blobs string
	S3    s3.Config
}

func (r role) openBlobs() (blob.Store, error) {
	if r.Blobs != "" {
		return dir.New(r.Blobs)
	}
	return s3.New(r.S3)
}

// be is such a process, until SIGTERM.
func be(config string) error {
	var r role
	if err := json.Unmarshal([]byte(config), &r); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", r.Name)
	record, err := postgres.Open(ctx, r.DSN)
	if err != nil {
		return err
	}
	defer record.Close()
	queue, err := redis.Open(r.Redis)
	if err != nil {
		return err
	}
	defer queue.Close()
	blobs, err := r.openBlobs()
	if err != nil {
		return err
	}
	if r.Name == "api" {
		c, err := control.New(control.Config{LogPoll: 200 * time.Millisecond}, record, queue, blobs, log)
		if err != nil {
			return err
		}
		return serve(ctx, r, c, log)
	}
	key, err := receipt.LoadOrCreateKey(r.Key)
	if err != nil {
		return err
	}
	signer, err := receipt.NewSigner(key)
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{
		Name: r.Name, Concurrency: 3, Lease: lease, Poll: 100 * time.Millisecond, Sweep: time.Second,
		Patience: 30 * time.Second, Drain: time.Second,
	}, worker.Deps{
		Store: record, Queue: queue, Blobs: blobs, Signer: signer, Log: log,
		Nodes: []worker.Node{{Name: "real", Dial: func(ctx context.Context) (worker.Connection, error) { return execrpc.DialUnix(ctx, r.Socket) }}},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func serve(ctx context.Context, r role, c *control.Control, log *slog.Logger) error {
	api, err := httpapi.New(httpapi.Config{Log: log}, c)
	if err != nil {
		return err
	}
	l, err := httpapi.Listen(httpapi.AuthAPIKey, r.Listen)
	if err != nil {
		return err
	}
	part, err := api.Part(l)
	if err != nil {
		return err
	}
	return service.Group{Parts: []*service.Part{part}}.Run(ctx)
}

// process is one that is killed, paused, and started again.
type process struct {
	w    *world
	role role
	cmd  *exec.Cmd
	gone chan struct{}
}

func (p *process) start() {
	p.w.Helper()
	config, err := json.Marshal(p.role)
	p.w.ok(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+string(config))
	cmd.Stdout, cmd.Stderr = p.w.logs, p.w.logs
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	p.w.ok(cmd.Start())
	gone := make(chan struct{})
	p.cmd, p.gone = cmd, gone
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
}

func (p *process) signal(s unix.Signal) {
	fmt.Fprintf(p.w.logs, "-- %v to %s\n", s, p.role.Name)
	_ = p.cmd.Process.Signal(s)
}

// end sends a signal that ends the process, and waits for that.
func (p *process) end(s unix.Signal) {
	p.signal(s)
	select {
	case <-p.gone:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		p.w.Errorf("%s did not end after %v", p.role.Name, s)
		<-p.gone
	}
}
