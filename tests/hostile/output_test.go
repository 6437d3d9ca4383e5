package hostile

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// cut wants that the log was bounded and says so.
func cut(r ran) string {
	if int64(len(r.stdout)) > run.DefaultLimits().OutputBytes || int64(len(r.stderr)) > run.DefaultLimits().OutputBytes || !r.Truncated {
		return fmt.Sprintf("kept %d and %d bytes, truncated %v", len(r.stdout), len(r.stderr), r.Truncated)
	}
	return ""
}

// wrote wants that all was counted, kept or not.
func wrote(n int64) check {
	return func(r ran) string {
		if r.StdoutBytes+r.StderrBytes < n {
			return fmt.Sprintf("counted %d and %d bytes, want %d", r.StdoutBytes, r.StderrBytes, n)
		}
		return ""
	}
}

// unbounded shows that the flood is one where nobody cuts it.
var unbounded = shown("a plain pipe passes all of it on", func(b *bench) {
	if got := len(b.through(b.user(), do("flood", "stdout", "5000000"))); got < 5000000 {
		b.Errorf("the control does not bite: %d bytes", got)
	}
})

var outputCases = []attack{
	{what: "yes", with: short, do: do("yes", "stdout"), want: append(want(cut, hit(run.LimitOutput)), forever...)},
	{what: "yes_on_stderr", with: short, do: do("yes", "stderr"), want: append(want(cut, hit(run.LimitOutput)), forever...)},
	{what: "flood", do: do("flood", "stdout", "5000000"), want: want(exited(0), cut, wrote(5000000), hit(run.LimitOutput)), bites: unbounded},
	{what: "flood_of_a_gigabyte", do: do("flood", "stdout", "1000000000"), want: want(exited(0), cut, wrote(1000000000))},
	{what: "flood_both", do: do("flood-both", "20000"), want: want(exited(0), wrote(40000))},
	{what: "one_big_write", do: do("one-write", "50000000"), want: want(exited(0), cut, wrote(50000000))},
	{what: "every_byte", do: do("bytes"), want: want(exited(0), func(r ran) string {
		if !strings.Contains(r.stdout, "\xfc\xfd\xfe\xff\x1b]0;title\x07\x1b[2J\xff\xfe\xc3") || r.stdout[0] != 0 {
			return "bytes were changed"
		}
		return ""
	})},
	{what: "reopened_output", do: do("flood-reopened", "1000000"), want: want(either(want(exited(0), cut), want(blocked("EACCES", "ENXIO"))))},
	{what: "closed_output", do: do("close-output"), want: want(exited(0), within(20*time.Second))},
	{what: "meddled_output", do: do("meddle-output"), want: want(exited(0), prints("still here"))},
	{what: "reads_its_own_output", do: do("read-own-output"), want: want(blocked("EACCES", "EBADF", "EAGAIN", "ENXIO"))},
	{what: "inherited_descriptors", do: do("inherited"), want: want(nothing), bites: shown("a descriptor is handed on to a program of the host", func(b *bench) {
		cmd := b.command(b.user(), do("inherited"))
		r, w, err := pipe()
		if err != nil {
			b.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
		out, err := cmd.CombinedOutput()
		b.judge(do("inherited"), err, string(out))
	})},
	{what: "child_floods_after_the_end", do: do("child-outlives"), want: want(exited(0), within(20*time.Second))},
	{what: "terminal_flood", with: func(e *execenv.ExecSpec) {
		short(e)
		e.TTY = &execenv.WindowSize{Cols: 80, Rows: 24}
	}, do: do("yes", "stdout"), want: forever},
	{what: "little_is_kept", with: func(e *execenv.ExecSpec) { e.OutputBytes = 10 }, do: do("flood", "stdout", "100000"), want: want(exited(0), wrote(100000), func(r ran) string {
		if len(r.stdout) != 10 {
			return fmt.Sprintf("kept %d bytes, want 10", len(r.stdout))
		}
		return ""
	})},
	{what: "nobody_reads", run: nobodyReads},
	{what: "reader_walks_away", run: readerWalksAway},
	{what: "never_reads_input", run: neverReads},
}

func nobodyReads(w *world) {
	p := w.start(w.box, nil, "flood", "stdout", "20000000")
	res, err := p.Wait(w.ctx())
	if err != nil || !res.Outcome.Success() {
		w.Errorf("a flood that nobody reads ends as %v, %v", res.Outcome, err)
	}
}

func readerWalksAway(w *world) {
	p := w.start(w.box, nil, "flood", "stdout", "5000000")
	err := p.Output(w.ctx(), 0, func(execenv.Chunk) error { return errSeen })
	if err == nil {
		w.Error("the reader's error was lost")
	}
	w.holds("afterwards", p.finish(), exited(0), cut, wrote(5000000))
}

// neverReads writes to a program that does not read: only the writer waits.
func neverReads(w *world) {
	p := w.start(w.box, func(e *execenv.ExecSpec) { e.Stdin = true }, "hold")
	p.await("ready")
	block := make([]byte, 64<<10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if _, err := p.WriteStdin(w.ctx(), block); err != nil {
				return
			}
		}
	}()
	w.holds("meanwhile", w.try(w.box, "print", "other"), exited(0))
	if err := p.Signal(w.ctx(), syscall.SIGKILL); err != nil {
		w.Error(err)
	}
	w.holds("killed", p.finish(), signalled("SIGKILL"))
	select {
	case <-done:
	case <-time.After(patience):
		w.Error("a write to a program that is gone has not returned")
	}
}
