package execenvtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// C is the world of one case: its environment and the sandboxes in it.
type C struct {
	*testing.T
	h    Harness
	env  execenv.Environment
	caps execenv.Capabilities
	// unknown are what parts of the case were left out for.
	unknown map[string]bool
	// late are the functions that soon and watch gave up on: they may still
	// report to the test, which must not be over before them.
	late sync.WaitGroup
}

func newCase(t *testing.T, h Harness) *C {
	c := &C{T: t, h: h, env: h.New(t), unknown: map[string]bool{}}
	c.caps = c.env.Capabilities()
	t.Cleanup(func() { c.nothingLeft() }) // before New's own clean-up
	return c
}

// nothingLeft destroys what the case made and checks that this frees all of it.
func (c *C) nothingLeft() {
	// The contexts of the case have ended by now, so this is quick unless a
	// method ignores them.
	late := make(chan struct{})
	go func() { defer close(late); c.late.Wait() }()
	select {
	case <-late:
	case <-time.After(c.h.Patience):
		c.Errorf("after the case: a method that was given up on still runs")
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.h.Patience)
	defer cancel()
	infos, err := c.env.List(ctx)
	if err != nil {
		c.Errorf("after the case: List: %v", err)
	}
	for _, info := range infos {
		if err := c.env.Destroy(ctx, info.ID); err != nil {
			c.Errorf("after the case: Destroy(%s): %v", info.ID, err)
		}
	}
	if infos, err = c.env.List(ctx); err != nil || len(infos) > 0 {
		c.Errorf("after Destroy of all, List gives %v, %v", infos, err)
	}
	if c.h.Leftovers != nil {
		if left := c.h.Leftovers(c.T, c.env); len(left) > 0 {
			c.Errorf("after Destroy of all, the host still holds:\n\t%s", strings.Join(left, "\n\t"))
		}
	}
}

// ctx ends when patience does: no case hangs.
func (c *C) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), c.h.Patience)
	c.T.Cleanup(cancel)
	return ctx
}

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (c *C) id() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "t-" + hex.EncodeToString(b[:])
}

// limits are what a case gets that is not about a limit.
func (c *C) limits() run.Limits {
	l := run.DefaultLimits()
	l.MemoryBytes = 256 * run.MiB
	l.DiskBytes = 32 * run.MiB
	l.Inodes = 4096
	l.PIDs = 128
	l.WallClock = 2 * c.h.Patience
	return l
}

func (c *C) spec(mods ...func(*execenv.Spec)) execenv.Spec {
	s := execenv.Spec{ID: c.id(), Image: c.h.Image, Limits: c.limits()}
	for _, mod := range mods {
		mod(&s)
	}
	s.Limits = c.caps.Enforces.Allow(s.Limits)
	return s
}

// box is a sandbox with the probe in it.
type box struct {
	execenv.Sandbox
	c    *C
	spec execenv.Spec
}

// probePath is where the suite puts the probe.
const probePath = execenv.Workspace + "/.probe"

func (c *C) create(mods ...func(*execenv.Spec)) *box {
	c.Helper()
	b := c.bare(mods...)
	b.install()
	return b
}

// bare makes a sandbox without the probe.
func (c *C) bare(mods ...func(*execenv.Spec)) *box {
	c.Helper()
	spec := c.spec(mods...)
	s, err := c.env.Create(c.ctx(), spec)
	if err != nil {
		c.Fatalf("Create: %v", err)
	}
	if s.ID() != spec.ID {
		c.Fatalf("sandbox has the ID %q, want %q", s.ID(), spec.ID)
	}
	return &box{Sandbox: s, c: c, spec: spec}
}

func (b *box) install() {
	b.c.Helper()
	p := b.c.probe()
	if err := b.PutArchive(b.c.ctx(), "", bytes.NewReader(tarOf(b.c.T, file(".probe", 0o755, string(p))))); err != nil {
		b.c.Fatalf("cannot put the probe into the sandbox: %v", err)
	}
}

// endless is a number of bytes that no probe gets written, however fast the
// environment drops them and however late the case looks.
const endless = "9000000000000000000"

// probe makes the ExecSpec that runs a verb.
func probe(verb string, args ...string) execenv.ExecSpec {
	return execenv.ExecSpec{Argv: append([]string{probePath, verb}, args...)}
}

// start starts a verb.
func (b *box) start(verb string, args ...string) *proc {
	b.c.Helper()
	return b.exec(probe(verb, args...))
}

func (b *box) exec(spec execenv.ExecSpec) *proc {
	b.c.Helper()
	x, err := b.Exec(b.c.ctx(), spec)
	if err != nil {
		b.c.Fatalf("Exec %q: %v", spec.Argv[min(1, len(spec.Argv)-1)], err)
	}
	return &proc{Exec: x, c: b.c, name: strings.Join(spec.Argv[min(1, len(spec.Argv)-1):], " ")}
}

// run runs a verb to its end.
func (b *box) run(verb string, args ...string) ran {
	b.c.Helper()
	return b.start(verb, args...).finish()
}

// output runs a verb that must succeed and returns its stdout.
func (b *box) output(verb string, args ...string) string {
	b.c.Helper()
	r := b.run(verb, args...)
	if !r.Outcome.Success() {
		b.c.Fatalf("probe %s %q: %v (%s)\nstdout: %s\nstderr: %s", verb, args, r.Outcome, r.Outcome.Evidence, clip(r.stdout), clip(r.stderr))
	}
	return r.stdout
}

// proc is a command.
type proc struct {
	execenv.Exec
	c    *C
	name string
}

// ran is a command that has ended and what it wrote.
type ran struct {
	execenv.Result
	stdout, stderr string
}

// finish waits for the end and reads the whole log.
func (p *proc) finish() ran {
	p.c.Helper()
	res := p.wait()
	out, errs := p.log(0)
	return ran{Result: res, stdout: out, stderr: errs}
}

func (p *proc) wait() execenv.Result {
	p.c.Helper()
	res, err := p.Wait(p.c.ctx())
	if err != nil {
		p.c.Fatalf("%s: Wait: %v", p.name, err)
	}
	return res
}

// log reads the log from an offset to the end and checks that offsets are
// gapless.
func (p *proc) log(from int64) (stdout, stderr string) {
	p.c.Helper()
	var out, errs strings.Builder
	next := from
	err := p.Output(p.c.ctx(), from, func(ch execenv.Chunk) error {
		if ch.Offset != next {
			p.c.Errorf("%s: chunk at offset %d, want %d", p.name, ch.Offset, next)
		}
		next = ch.Offset + int64(len(ch.Data))
		switch ch.Stream {
		case execenv.Stdout:
			out.Write(ch.Data)
		case execenv.Stderr:
			errs.Write(ch.Data)
		default:
			p.c.Errorf("%s: chunk of stream %v", p.name, ch.Stream)
		}
		return nil
	})
	if err != nil {
		p.c.Errorf("%s: Output: %v", p.name, err)
	}
	return out.String(), errs.String()
}

var errSeen = errors.New("seen")

// await reads the log until stdout holds text.
func (p *proc) await(text string) {
	p.c.Helper()
	var out, errs strings.Builder
	err := p.Output(p.c.ctx(), 0, func(ch execenv.Chunk) error {
		if ch.Stream == execenv.Stderr {
			errs.Write(ch.Data)
			return nil
		}
		out.Write(ch.Data)
		if strings.Contains(out.String(), text) {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		p.c.Fatalf("%s: did not print %q: Output ended with %v\nstdout: %s\nstderr: %s", p.name, text, err, clip(out.String()), clip(errs.String()))
	}
}

// kind checks how a command ended.
func (c *C) kind(what string, got run.Outcome, want run.Kind) {
	c.Helper()
	if got.Kind != want {
		c.Errorf("%s: outcome %v (%s), want %s", what, got, got.Evidence, want)
	}
	if (got.ExitCode != nil) != (got.Kind == run.Exited) {
		c.Errorf("%s: outcome %v: an exit code goes with exited only", what, got)
	}
	if (got.Signal != "") != (got.Kind == run.Signalled) {
		c.Errorf("%s: outcome %v: a signal goes with signalled only", what, got)
	}
}

func (c *C) exited(what string, got run.Outcome, code int) {
	c.Helper()
	c.kind(what, got, run.Exited)
	if got.ExitCode != nil && *got.ExitCode != code {
		c.Errorf("%s: exit code %d, want %d", what, *got.ExitCode, code)
	}
}

// code checks an error's code.
func (c *C) code(what string, err error, want ...fault.Code) {
	c.Helper()
	for _, w := range want {
		if err != nil && fault.Is(err, w) {
			return
		}
	}
	c.Errorf("%s: error %v (code %q), want code %q", what, err, fault.CodeOf(err), want)
}

func (c *C) ok(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

// listed returns the Info of an ID, if List has it.
func (c *C) listed(id string) (execenv.Info, bool) {
	c.Helper()
	infos, err := c.env.List(c.ctx())
	if err != nil {
		c.Fatalf("List: %v", err)
	}
	for _, info := range infos {
		if info.ID == id {
			return info, true
		}
	}
	return execenv.Info{}, false
}

// eventually polls for what no signal tells.
func (c *C) eventually(what string, cond func() bool) {
	c.Helper()
	deadline := time.Now().Add(c.h.Patience)
	for !cond() {
		if time.Now().After(deadline) {
			c.Fatalf("still not after %s: %s", c.h.Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// soon fails the case if f takes longer than a caller would put up with.
func (c *C) soon(what string, f func()) {
	c.Helper()
	done := make(chan struct{})
	c.late.Go(func() { defer close(done); f() })
	select {
	case <-done:
	case <-time.After(c.h.Patience / 2):
		c.Fatalf("%s: has not returned after %s", what, c.h.Patience/2)
	}
}

// watch runs a case and gives it up when it takes far longer than its own
// waiting can explain: a method that ignores its context must fail its case,
// not hang the suite.
func (c *C) watch(run func(*C)) {
	done := make(chan struct{})
	c.late.Go(func() { defer close(done); run(c) })
	select {
	case <-done:
	case <-time.After(4 * c.h.Patience):
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		c.Errorf("the case has not ended after %s: a method ignores its context\n%s", 4*c.h.Patience, buf)
	}
}

// together runs f n times at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-gate; f(i) })
	}
	close(gate)
	wg.Wait()
}

func clip(s string) string {
	if len(s) > 2000 {
		return fmt.Sprintf("%s… (%d bytes)", s[:2000], len(s))
	}
	return s
}
