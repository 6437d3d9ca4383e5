package hostile

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// patience bounds every wait; no case hangs.
const patience = 90 * time.Second

// attackPath is where the attacking program is in a sandbox.
const attackPath = execenv.Workspace + "/.attack"

// attackProgram builds the attacking program, once.
var attackProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "attack")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out,
		"github.com/agentdock/agentdock/tests/hostile/attack")
	// The canary is the attacker's goal and must not be in the compiler's care.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build the attacking program: %w\n%s", err, msg)
	}
	return os.ReadFile(out)
})

// world is what a case has: a service, a sandbox, a bystander.
type world struct {
	*testing.T
	service   *testenv.Execd
	client    *execrpc.Client
	caps      execenv.Capabilities
	bystander *box
	box       *box
	host      hostState
	services  *services
}

func newWorld(t *testing.T, service *testenv.Execd) *world {
	w := &world{T: t, service: service, client: service.Dial(), services: openServices(t)}
	w.caps = w.client.Capabilities()
	w.bystander = w.create(nil)
	w.host = readHost(t)
	return w
}

// onHost is the attacking program as a file that every user may run.
func (w *world) onHost() string {
	w.Helper()
	program, err := attackProgram()
	if err != nil {
		w.Fatal(err)
	}
	return newBench(w.T, program, w.services).program
}

// in is the same world in a subtest.
func (w *world) in(t *testing.T) *world {
	c := *w
	c.T = t
	return &c
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.Cleanup(cancel)
	return ctx
}

// box is a sandbox with the attacking program in it.
type box struct {
	execenv.Sandbox
	limits run.Limits
}

func limits() run.Limits {
	l := run.DefaultLimits()
	l.MemoryBytes = 256 * run.MiB
	l.DiskBytes = 48 * run.MiB
	l.Inodes = 2048
	l.PIDs = 64
	l.WallClock = patience
	return l
}

func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "h-" + hex.EncodeToString(b[:])
}

func (w *world) create(change func(*run.Limits)) *box {
	w.Helper()
	spec := execenv.Spec{ID: newID(), Image: testenv.BareImage, Limits: limits()}
	if change != nil {
		change(&spec.Limits)
	}
	spec.Limits = w.caps.Enforces.Allow(spec.Limits)
	s, err := w.client.Create(w.ctx(), spec)
	if err != nil {
		w.Fatalf("Create: %v", err)
	}
	b := &box{Sandbox: s, limits: spec.Limits}
	program, err := attackProgram()
	if err != nil {
		w.Fatal(err)
	}
	if err := w.put(b, "", regular(".attack", 0o755, string(program))); err != nil {
		w.Fatalf("cannot put the attacking program into the sandbox: %v", err)
	}
	return b
}

// destroy frees a sandbox and looks whether the host still holds any of it.
func (w *world) destroy(b *box) {
	w.Helper()
	if err := w.client.Destroy(w.ctx(), b.ID()); err != nil {
		w.Errorf("Destroy: %v", err)
	}
	for _, left := range w.service.Leftovers() {
		if strings.Contains(left, b.ID()) {
			w.Errorf("left over: %s", left)
		}
	}
}

// proc is a running command.
type proc struct {
	execenv.Exec
	w    *world
	name string
}

func (w *world) start(b *box, change func(*execenv.ExecSpec), words ...string) *proc {
	w.Helper()
	spec := execenv.ExecSpec{Argv: append([]string{attackPath}, words...)}
	if change != nil {
		change(&spec)
	}
	x, err := b.Exec(w.ctx(), spec)
	if err != nil {
		w.Fatalf("Exec %q: %v", words, err)
	}
	return &proc{x, w, strings.Join(words, " ")}
}

func (w *world) try(b *box, words ...string) ran {
	w.Helper()
	return w.start(b, nil, words...).finish()
}

// finish waits for the end and reads all output.
func (p *proc) finish() ran {
	p.w.Helper()
	res, err := p.Wait(p.w.ctx())
	if err != nil {
		p.w.Fatalf("%s: Wait: %v", clip(p.name), err)
	}
	var out, errs strings.Builder
	err = p.Output(p.w.ctx(), 0, func(ch execenv.Chunk) error {
		if ch.Stream == execenv.Stdout {
			out.Write(ch.Data)
		} else {
			errs.Write(ch.Data)
		}
		return nil
	})
	if err != nil {
		p.w.Fatalf("%s: Output: %v", clip(p.name), err)
	}
	seenOutput(out.String(), errs.String())
	return ran{res, out.String(), errs.String(), p.w.unknown}
}

var errSeen = errors.New("seen")

// await reads output until it holds a text.
func (p *proc) await(text string) {
	p.w.Helper()
	var out strings.Builder
	err := p.Output(p.w.ctx(), 0, func(ch execenv.Chunk) error {
		out.Write(ch.Data)
		if strings.Contains(out.String(), text) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		p.w.Fatalf("%s: did not print %q but %q: %v", clip(p.name), text, clip(out.String()), err)
	}
}

func (p *proc) kill() {
	p.w.Helper()
	if err := p.Kill(p.w.ctx()); err != nil {
		p.w.Errorf("%s: Kill: %v", clip(p.name), err)
	}
	if _, err := p.Wait(p.w.ctx()); err != nil {
		p.w.Errorf("%s: Wait: %v", clip(p.name), err)
	}
}

// holds checks how a command ended.
func (w *world) holds(what string, r ran, checks ...check) {
	w.Helper()
	if wrong := problems(checks, r); len(wrong) > 0 {
		w.Errorf("%s: %s\noutcome: %v (%s), %d and %d bytes\nstdout: %s\nstderr: %s", clip(what), strings.Join(wrong, "; "),
			r.Outcome, r.Outcome.Evidence, r.StdoutBytes, r.StderrBytes, clip(r.stdout), clip(r.stderr))
	}
}

// entry makes a member of an archive.
type entry struct {
	tar.Header
	body string
}

func regular(name string, mode int64, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(body))}, body}
}

func link(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.Typeflag == tar.TypeReg && e.Size == 0 {
			e.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (w *world) put(b *box, dir string, entries ...entry) error {
	return b.PutArchive(w.ctx(), dir, bytes.NewReader(archive(w.T, entries...)))
}

func clip(s string) string {
	if len(s) > 1500 {
		return fmt.Sprintf("%q… (%d bytes)", s[:1500], len(s))
	}
	return s
}

// unknown says whether the environment declares that it cannot tell when a command
// reaches a limit.
func (w *world) unknown(l run.Limit) bool {
	if !slices.Contains(run.AtLimits(), l) || w.caps.Reports.Has(l) {
		return false
	}
	w.Logf("in part not enforceable here: telling that a command reached its %s limit", l)
	return true
}
