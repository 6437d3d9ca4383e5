package livefiles_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// patience bounds every wait; no case hangs.
const patience = 2 * time.Minute

const probePath = execenv.Workspace + "/.probe"

// world is a live sandbox on a real service.
type world struct {
	*testing.T
	*livefiles.Files
	sandbox execenv.Sandbox
}

func limits() run.Limits {
	l := run.DefaultLimits()
	l.DiskBytes = 64 * run.MiB
	l.MemoryBytes = 256 * run.MiB
	l.PIDs = 64
	return l
}

func newWorld(t *testing.T, change func(*run.Limits)) *world {
	t.Helper()
	client := testenv.StartExecd(t, testenv.BareStore(t)).Dial()
	l := limits()
	if change != nil {
		change(&l)
	}
	w := &world{T: t}
	var err error
	if w.sandbox, err = client.Create(w.ctx(), execenv.Spec{ID: "files", Image: testenv.BareImage, Limits: l}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Destroy(w.ctx(), "files"); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	var archive bytes.Buffer
	program := execenvtest.BuildProbe(t)
	tw := tar.NewWriter(&archive)
	_ = tw.WriteHeader(&tar.Header{Name: ".probe", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
	_, _ = tw.Write(program)
	_ = tw.Close()
	if err := w.sandbox.PutArchive(w.ctx(), "", &archive); err != nil {
		t.Fatal(err)
	}
	if w.Files, err = livefiles.Open(w.sandbox, l.OutputBytes); err != nil {
		t.Fatal(err)
	}
	return w
}

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

// probe runs a program in the sandbox to its end and returns its output.
func (w *world) probe(words ...string) string {
	w.Helper()
	x, err := w.sandbox.Exec(w.ctx(), execenv.ExecSpec{Argv: append([]string{probePath}, words...)})
	if err != nil {
		w.Fatalf("%q: %v", words, err)
	}
	var out strings.Builder
	if err := x.Output(w.ctx(), 0, func(c execenv.Chunk) error { out.Write(c.Data); return nil }); err != nil {
		w.Fatalf("%q: %v", words, err)
	}
	res, err := x.Wait(w.ctx())
	if err != nil || res.Outcome.Kind != run.Exited || *res.Outcome.ExitCode != 0 {
		w.Fatalf("%q: %+v, %v\n%s", words, res.Outcome, err, out.String())
	}
	return out.String()
}

func (w *world) write(path, contents string) livefiles.Entry {
	w.Helper()
	e, err := w.Write(w.ctx(), path, 0, strings.NewReader(contents))
	if err != nil {
		w.Fatalf("Write %q: %v", path, err)
	}
	return e
}

func (w *world) read(path string) string {
	w.Helper()
	data, err := w.part(path, livefiles.Part{})
	if err != nil {
		w.Fatalf("Read %q: %v", path, err)
	}
	return data
}

func (w *world) part(path string, part livefiles.Part) (string, error) {
	var out bytes.Buffer
	err := w.Files.Read(w.ctx(), path, part, func(livefiles.Entry) (io.Writer, error) { return &out, nil })
	return out.String(), err
}

func (w *world) names(dir string, depth int) []string {
	w.Helper()
	entries, err := w.List(w.ctx(), dir, depth)
	if err != nil {
		w.Fatalf("List %q: %v", dir, err)
	}
	var names []string
	for _, e := range entries {
		if e.Path != probePath {
			names = append(names, string(e.Kind)+" "+e.Path)
		}
	}
	return names
}

func (w *world) wantCode(what string, err error, code fault.Code) {
	w.Helper()
	if !fault.Is(err, code) {
		w.Errorf("%s: %v, not %s", what, err, code)
	}
}
