package chaos

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// clientConfig is what a client process gets on its command line's place, the
// environment: a process that is killed must be one of its own.
type clientConfig struct {
	Socket, Image, Program, Prefix string
	Seed                           uint64
}

const clientVariable = "AGENTDOCK_CHAOS_CLIENT"

// event is one thing a client saw.
type event struct {
	// What is create, exec, archive or destroy.
	What    string
	Sandbox string
	// Outcome is how it went: an outcome's kind, "ok", or "error: " and a code.
	Outcome string
	// Violation says what must never happen and did.
	Violation string `json:",omitempty"`
	// Excuse is the kind of kill without which this must never happen.
	Excuse []kind `json:",omitempty"`
}

// patience is longer than anything may take, also in a sandbox whose kernel is
// stopped; a call that takes longer hangs.
const patience = 2 * time.Minute

type client struct {
	clientConfig
	env     execenv.Environment
	program []byte
	rng     *rand.Rand
	mu      sync.Mutex
	out     *json.Encoder
}

// clientMain works until its standard input ends, and writes what it sees.
func clientMain(config string) int {
	c := &client{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(config), &c.clientConfig); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c.rng = rand.New(rand.NewPCG(c.Seed, 0))
	var err error
	if c.program, err = os.ReadFile(c.Program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		if e, err := execrpc.DialUnix(ctx, c.Socket); err == nil {
			c.env = e
			break
		}
		time.Sleep(20 * time.Millisecond) // the service is being started again
	}
	for n := 0; ctx.Err() == nil; n++ {
		c.round(fmt.Sprintf("%s-%d", c.Prefix, n))
	}
	return 0
}

func (c *client) say(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.out.Encode(e)
}

func (c *client) note(what, sandbox string, err error) {
	e := event{What: what, Sandbox: sandbox, Outcome: "ok"}
	if err != nil {
		e.Outcome = "error: " + string(fault.CodeOf(err))
		if errors.Is(err, context.DeadlineExceeded) {
			e.Violation = fmt.Sprintf("%s hangs: %v", what, err)
		}
	}
	c.say(e)
}

func limits() run.Limits {
	l := run.DefaultLimits()
	l.MemoryBytes, l.DiskBytes, l.Inodes, l.PIDs = 192*run.MiB, 32*run.MiB, 1024, 64
	return l
}

// round is the whole life of one sandbox.
func (c *client) round(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	defer c.destroy(id)
	sb, err := c.env.Create(ctx, execenv.Spec{ID: id, Image: c.Image, Limits: limits(), Lifetime: 5 * time.Minute})
	c.note("create", id, err)
	if err != nil {
		time.Sleep(time.Duration(c.rng.IntN(50)) * time.Millisecond)
		return
	}
	err = sb.PutArchive(ctx, "bin", tarOf("program", c.program))
	c.note("archive", id, err)
	if err != nil {
		return
	}
	for i := range 1 + c.rng.IntN(3) {
		var wg sync.WaitGroup
		for j := range 1 + c.rng.IntN(3) {
			p := c.pick(fmt.Sprintf("e%d-%d", i, j))
			wg.Go(func() { c.exec(ctx, sb, p) })
		}
		if c.rng.IntN(2) == 0 {
			data := make([]byte, 1+c.rng.IntN(1<<20))
			wg.Go(func() { c.roundTrip(ctx, sb, data) })
		}
		wg.Wait()
	}
}

func (c *client) destroy(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := c.env.Destroy(ctx, id)
	if fault.Is(err, fault.Unavailable) {
		time.Sleep(20 * time.Millisecond)
		err = c.env.Destroy(ctx, id)
	}
	c.note("destroy", id, err)
}

// planned is a command and what is known about its end beforehand.
type planned struct {
	spec   execenv.ExecSpec
	code   int // -1: it does not end by itself
	output string
	cancel bool
}

func (c *client) pick(id string) planned {
	program := execenv.Workspace + "/bin/program"
	if n := c.rng.IntN(6); n < 2 {
		p := planned{spec: execenv.ExecSpec{ID: id, Argv: []string{program, "hold"}, Timeout: 500 * time.Millisecond}, code: -1, cancel: n == 1}
		if p.cancel {
			p.spec.Timeout = patience
		}
		return p
	}
	code, pause, size := c.rng.IntN(256), c.rng.IntN(300), c.rng.IntN(5000)
	var out strings.Builder
	fmt.Fprintf(&out, "exit %d\n", code)
	for i := range size {
		fmt.Fprintln(&out, i)
	}
	argv := []string{program, "promise", fmt.Sprint(code), fmt.Sprint(pause), fmt.Sprint(size)}
	return planned{spec: execenv.ExecSpec{ID: id, Argv: argv, Timeout: 30 * time.Second}, code: code, output: out.String()}
}

// exec runs one command, with two that wait for its end and one that reads.
func (c *client) exec(ctx context.Context, sb execenv.Sandbox, p planned) {
	x, err := sb.Exec(ctx, p.spec)
	if err != nil {
		c.note("exec", sb.ID(), err)
		return
	}
	if p.cancel {
		time.AfterFunc(100*time.Millisecond, func() { _ = x.Kill(ctx) })
	}
	var (
		wg      sync.WaitGroup
		results [2]execenv.Result
		errs    [2]error
		out     bytes.Buffer
		outErr  error
	)
	for i := range results {
		wg.Go(func() { results[i], errs[i] = x.Wait(ctx) })
	}
	wg.Go(func() {
		outErr = x.Output(ctx, 0, func(k execenv.Chunk) error {
			if k.Stream == execenv.Stdout {
				out.Write(k.Data)
			}
			return nil
		})
	})
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			c.note("exec", sb.ID(), err)
			errs[0], results[0] = errs[1-i], results[1-i]
		}
	}
	if errs[0] != nil {
		return
	}
	e := event{What: "exec", Sandbox: sb.ID(), Outcome: string(results[0].Outcome.Kind)}
	again := results[0]
	if errs[1] == nil {
		again = results[1]
	}
	if late, err := sb.AttachExec(ctx, p.spec.ID); err == nil {
		if r, err := late.Wait(ctx); err == nil {
			again = r
		}
	}
	if !reflect.DeepEqual(results[0], again) {
		e.Violation = fmt.Sprintf("one command, two results: %+v and %+v", results[0], again)
	} else {
		e.Violation, e.Excuse = p.judge(results[0], out.String(), outErr)
	}
	c.say(e)
}

// judge says what is untrue about a result, if anything is, or which kill alone
// can explain it.
func (p planned) judge(r execenv.Result, out string, outErr error) (violation string, excuse []kind) {
	o := r.Outcome
	bad := func(format string, args ...any) (string, []kind) {
		return fmt.Sprintf("%q: %s (%s): %s", p.spec.Argv, o, o.Evidence, fmt.Sprintf(format, args...)), nil
	}
	if !strings.HasPrefix(p.output, out) {
		return bad("output that the program did not write")
	}
	switch o.Kind {
	case run.Exited:
		switch {
		case p.code < 0 || o.ExitCode == nil || *o.ExitCode != p.code:
			return bad("the program did not give that code")
		case outErr == nil && out != p.output:
			return bad("%d of %d bytes of output, and no error", len(out), len(p.output))
		}
	case run.WallClock:
		if r.Duration < p.spec.Timeout {
			return bad("after %v", r.Duration)
		}
	case run.Cancelled:
		if !p.cancel {
			return bad("nobody cancelled it")
		}
	case run.Signalled:
		// A sentry whose helper process is gone takes its program for broken.
		if o.Signal != "SIGKILL" {
			return "", []kind{killStub}
		}
		return "", []kind{killStub, killGuest}
	case run.NotStarted:
		// Nor can it start any more then, and says that it has no memory.
		return "", []kind{killStub}
	case run.InfrastructureLost:
		return "", []kind{killStub, killSentry}
	default:
		return bad("nothing led to that")
	}
	return "", nil
}

// roundTrip copies a file in and out again.
func (c *client) roundTrip(ctx context.Context, sb execenv.Sandbox, data []byte) {
	for i := range data {
		data[i] = byte(i * 7)
	}
	err := sb.PutArchive(ctx, "data", tarOf("file", data))
	c.note("archive", sb.ID(), err)
	if err != nil {
		return
	}
	var back bytes.Buffer
	err = sb.GetArchive(ctx, execenv.ArchiveRequest{Dir: "data"}, &back)
	c.note("archive", sb.ID(), err)
	if err != nil {
		return
	}
	r := tar.NewReader(&back)
	h, err := r.Next()
	if err == nil {
		var got []byte
		if got, err = io.ReadAll(r); err == nil && (filepath.Base(h.Name) != "file" || !bytes.Equal(got, data)) {
			err = fmt.Errorf("%s has %d bytes of %d, or others", h.Name, len(got), len(data))
		}
	}
	if err != nil {
		c.say(event{What: "archive", Sandbox: sb.ID(), Outcome: "ok", Violation: fmt.Sprintf("a transfer without an error lost data: %v", err)})
	}
}

func tarOf(name string, data []byte) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg})
	_, _ = w.Write(data)
	_ = w.Close()
	return &b
}
