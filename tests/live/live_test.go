package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

func (w *world) run(box string, argv ...string) (string, *api.ExecResult) {
	w.Helper()
	var out bytes.Buffer
	end, err := client.CopyExec(w.RunExec(w.Context(), box, api.ExecSpec{Argv: argv}), &out, &out)
	w.ok(err)
	return out.String(), end
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestBadInput: each has its documented code, and the sandbox works afterwards.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox(api.SandboxSpec{Limits: api.Limits{DiskBytes: 8 << 20}})
	ctx := t.Context()
	w.run(box, "python3", "-c", `import os; os.mkfifo("fifo"); os.mkdir("d"); os.symlink("/etc/shadow", "link"); os.symlink("loop", "loop"); open("f", "w").write("x")`)
	_, err := w.StartExec(ctx, box, api.ExecSpec{ID: "held", Argv: []string{"sleep", "1000"}})
	w.ok(err)
	w.run(box, "true")
	_, err = w.StartExec(ctx, box, api.ExecSpec{ID: "closed", Argv: []string{"cat"}, Stdin: true})
	w.ok(err)
	w.ok(w.WriteStdin(ctx, box, "closed", strings.NewReader("x"), true))
	long := strings.Repeat("a", 4096)
	read := func(path string) func() error { return func() error { return w.ReadFile(ctx, box, path, io.Discard) } }
	write := func(path string, r io.Reader) func() error {
		return func() error { _, err := w.WriteFile(ctx, box, path, r); return err }
	}
	for name, bad := range map[string]struct {
		call func() error
		want api.ProblemCode
	}{
		"read a path with ..":           {read("../../no-such-file"), api.ProblemCodeInvalid},
		"read what only root may":       {read("/etc/shadow"), api.ProblemCodeDenied},
		"read it through a symlink":     {read("link"), api.ProblemCodeDenied},
		"read a symlink to itself":      {read("loop"), api.ProblemCodeInvalid},
		"read a directory":              {read("d"), api.ProblemCodeInvalid},
		"read a fifo":                   {read("fifo"), api.ProblemCodeInvalid},
		"read an endless file":          {read("/dev/zero"), api.ProblemCodeInvalid},
		"read the kernel's log":         {read("/proc/kmsg"), api.ProblemCodeNotFound},
		"read a name with NUL":          {read("a\x00b"), api.ProblemCodeInvalid},
		"read a name of 4,096 bytes":    {read(long), api.ProblemCodeInvalid},
		"write more than the quota":     {write("big", io.LimitReader(endless{}, 32<<20)), api.ProblemCodeExhausted},
		"write where the user may not":  {write("/etc/x", strings.NewReader("x")), api.ProblemCodeDenied},
		"write over a directory":        {write("d", strings.NewReader("x")), api.ProblemCodeInvalid},
		"write below a file":            {write("f/x", strings.NewReader("x")), api.ProblemCodeInvalid},
		"a directory that is there":     {func() error { _, err := w.MakeDirectory(ctx, box, "d"); return err }, api.ProblemCodeConflict},
		"move what is not there":        {func() error { _, err := w.MoveFile(ctx, box, "nothing", "x"); return err }, api.ProblemCodeNotFound},
		"remove what is not there":      {func() error { return w.RemoveFile(ctx, box, "nothing") }, api.ProblemCodeNotFound},
		"unpack what is no tar":         {func() error { return w.PutArchive(ctx, box, "", strings.NewReader(long)) }, api.ProblemCodeInvalid},
		"unpack above the workspace":    {func() error { return w.PutArchive(ctx, box, "../x", strings.NewReader("")) }, api.ProblemCodeInvalid},
		"stdin after close":             {func() error { return w.WriteStdin(ctx, box, "closed", strings.NewReader("x"), false) }, api.ProblemCodeGone},
		"stdin of a command without":    {func() error { return w.WriteStdin(ctx, box, "held", strings.NewReader("x"), false) }, api.ProblemCodeInvalid},
		"resize to nothing":             {func() error { return w.ResizeExec(ctx, box, "held", api.TerminalSize{}) }, api.ProblemCodeInvalid},
		"resize what has no terminal":   {func() error { return w.ResizeExec(ctx, box, "held", api.TerminalSize{Cols: 1, Rows: 1}) }, api.ProblemCodeInvalid},
		"a signal that does not exist":  {func() error { return w.SignalExec(ctx, box, "held", "SIGNOPE") }, api.ProblemCodeInvalid},
		"a command that does not exist": {func() error { return w.KillExec(ctx, box, "nobody") }, api.ProblemCodeNotFound},
		"a sandbox that does not exist": {func() error { _, err := w.Sandbox(ctx, strings.Repeat("0", 26)); return err }, api.ProblemCodeNotFound},
		"a shell":                       {func() error { _, err := w.StartExec(ctx, box, api.ExecSpec{Script: "true"}); return err }, api.ProblemCodeDenied},
	} {
		if err := bad.call(); client.CodeOf(err) != bad.want {
			t.Errorf("%s: %v, want %s", name, err, bad.want)
		}
	}
	// Signals to what has ended are no errors, and change nothing.
	w.ok(w.SignalExec(ctx, box, "closed", "SIGKILL"))
	w.ok(w.KillExec(ctx, box, "closed"))
	if x, err := w.Exec(ctx, box, "closed"); err != nil || x.Result == nil || x.Result.Outcome.Kind != "exited" {
		t.Errorf("a command that had ended is now %+v, %v", x, err)
	}
	w.ok(w.KillExec(ctx, box, "held"))
	if _, err := client.CopyExec(w.FollowExec(ctx, box, "held", 0), io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
	w.usable(box)
}

// TestManyAtOnce starts 200 commands together: each runs, or is told that there
// are too many.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox(api.SandboxSpec{})
	var ran, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			var out bytes.Buffer
			text := fmt.Sprint(i)
			end, err := client.CopyExec(w.RunExec(t.Context(), box, api.ExecSpec{Argv: []string{"echo", text}}), &out, &out)
			switch {
			case client.Is(err, api.ProblemCodeExhausted):
				refused.Add(1)
			case err != nil || out.String() != text+"\n" || end.Outcome.Kind != "exited":
				t.Errorf("command %d: %v, %q, %+v", i, err, out.String(), end)
			default:
				ran.Add(1)
			}
		})
	}
	all.Wait()
	if ran.Load() == 0 || ran.Load()+refused.Load() != 200 {
		t.Errorf("%d ran and %d were refused", ran.Load(), refused.Load())
	}
	t.Logf("of 200 at once, %d ran and %d were refused", ran.Load(), refused.Load())
	w.usable(box)
}

func TestManyInARow(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox(api.SandboxSpec{TTLMS: 2 * 3600_000})
	for i := range *inARow {
		if _, end := w.run(box, "true"); end.Outcome.Kind != "exited" {
			t.Fatalf("command %d ended as %+v", i, end.Outcome)
		}
	}
	w.usable(box)
}

// TestLargeFile writes and reads 50 MB.
func TestLargeFile(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox(api.SandboxSpec{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 50_000_000/16)
	e, err := w.WriteFile(t.Context(), box, "large", bytes.NewReader(data))
	w.ok(err)
	var got bytes.Buffer
	w.ok(w.ReadFile(t.Context(), box, "large", &got))
	if e.Bytes != int64(len(data)) || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("wrote %d bytes as %+v and read %d", len(data), e, got.Len())
	}
}

// TestWatch sees a file that a command makes.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	box := w.sandbox(api.SandboxSpec{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for event, err := range w.WatchFiles(ctx, box, ".", true) {
		w.ok(err)
		if event.Type == "ready" {
			w.run(box, "touch", "made")
		}
		if event.Type == "created" && event.Path == "/workspace/made" {
			return
		}
	}
	t.Error("the watch has ended without the event")
}
