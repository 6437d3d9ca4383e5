package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/localexecd"
)

// Options say what to look at.
type Options struct {
	// ImageDir is the store that is looked at. The probes use an image of
	// their own, so it may be empty.
	ImageDir string
	// Development says that sandboxes are the development fallback: it says what it
	// lacks, and is not attacked.
	Development bool
	// Quick leaves out what takes longer than a moment.
	Quick bool
	// Phase, if set, is told what goes on, and calls what it returns when that
	// has ended.
	Phase func(what string) (ended func())
}

// timeout bounds everything together.
const timeout = 3 * time.Minute

// Run looks at the host and attacks a sandbox. An error is about the doctor
// itself; what it found, however bad, is a Report.
func Run(ctx context.Context, o Options) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if o.Phase == nil {
		o.Phase = func(string) func() { return func() {} }
	}
	facts := hostFacts
	if o.Development {
		facts = fallbackFacts
	}
	r := &Report{Quick: o.Quick, Development: o.Development, Host: facts(o.ImageDir), Guarantees: make([]Guarantee, 0, len(checks))}
	err := examine(ctx, o, r)
	r.judge()
	return r, err
}

func examine(ctx context.Context, o Options, r *Report) error {
	if o.Development {
		return examineFallback(ctx, o, r)
	}
	if os.Geteuid() != 0 {
		r.cannotRun("gvisor", "not root", "run this as root: sudo agentdock doctor")
		return nil
	}
	dir, err := os.MkdirTemp("", "agentdock-doctor")
	if err != nil {
		return fmt.Errorf("cannot examine this host: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := bareStore(ctx, filepath.Join(dir, "images")); err != nil {
		return fmt.Errorf("cannot examine this host: %w", err)
	}
	binary, err := localexecd.FindBinary()
	if err != nil {
		return err
	}
	cfg := localexecd.Config{Binary: binary, ImageDir: filepath.Join(dir, "images")}
	// What a killed run left is not this host's fault; it would be found by
	// the look for leftovers otherwise.
	if err := localexecd.Sweep(ctx, cfg); err != nil {
		return err
	}
	ended := o.Phase("starting an execution service")
	service, err := localexecd.Start(ctx, cfg)
	ended()
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		r.cannotRun("gvisor", err.Error(), "mend what keeps gvisor from running, said above; then run agentdock doctor again")
		return nil
	}
	err = attack(ctx, o, r, service, &session{
		guest: filepath.Join(filepath.Dir(binary), "agentdock-guest"), dir: filepath.Join(dir, "control"),
	})
	return errors.Join(err, service.Stop())
}

func attack(ctx context.Context, o Options, r *Report, service *localexecd.Service, s *session) error {
	client, err := execrpc.DialUnix(ctx, service.Socket())
	if err != nil {
		return err
	}
	defer client.Close()
	s.env, s.service, s.stateDir = client, service.Pid(), service.StateDir()
	have := client.Capabilities()
	r.Environments = append(r.Environments, EnvironmentReport{Name: have.Name, Version: have.Version, Runs: true})
	r.Host = append(r.Host, diskFact(have.DiskBeyondMemory))
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	defer s.close()
	for _, c := range checks {
		if c.slow && o.Quick {
			r.Guarantees = append(r.Guarantees, Guarantee{ID: c.id, Name: c.name, Status: Skipped})
			continue
		}
		ended := o.Phase("probing: " + c.name)
		r.Guarantees = append(r.Guarantees, c.examine(ctx, s))
		ended()
		if err := ctx.Err(); err != nil {
			return fault.Wrap(fault.Unavailable, err, "the examination was given up")
		}
	}
	return nil
}

// examine turns what a check found into a line.
func (c check) examine(ctx context.Context, s *session) Guarantee {
	began := time.Now()
	f, err := c.run(ctx, s)
	g := Guarantee{ID: c.id, Name: c.name, Evidence: f.evidence, Control: f.control, DurationMS: time.Since(began).Milliseconds()}
	switch {
	case err != nil:
		g.Status = Unproven
		g.Evidence = "it could not be tried: " + reason(err)
		g.Do = "run it again; if it stays, report it with the output of agentdock doctor --json"
	case !f.refused:
		g.Status, g.Do = Broken, c.do
	case !f.bites:
		g.Status = Unproven
		g.Do = "the control did not come out as it must, so the refusal proves nothing; run it again on a quiet machine"
	default:
		g.Status = Holds
	}
	return g
}

func reason(err error) string {
	text := err.Error()
	if cause := errors.Unwrap(err); cause != nil {
		text += ": " + cause.Error()
	}
	return text
}

// cannotRun says of everything that it could not be tried.
func (r *Report) cannotRun(environment, why, do string) {
	r.Environments = append(r.Environments, EnvironmentReport{Name: environment, Reason: why})
	for _, c := range checks {
		r.Guarantees = append(r.Guarantees, Guarantee{
			ID: c.id, Name: c.name, Status: Unproven, Evidence: "no sandbox could be started", Do: do,
		})
	}
}

const bareImage = "bare"

// bareStore makes a store with the one image that needs nothing of the host.
func bareStore(ctx context.Context, dir string) error {
	w, err := image.OpenWriter(ctx, dir)
	if err != nil {
		return err
	}
	stage, err := w.Stage()
	if err != nil {
		return err
	}
	defer stage.Close()
	file := filepath.Join(stage.Dir(), "bare.erofs")
	if err := image.WriteBare(file); err != nil {
		return err
	}
	_, err = w.Add(ctx, file, image.Image{Name: bareImage})
	return err
}
