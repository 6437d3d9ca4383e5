package execenvtest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var inputCases = []testCase{
	{clause: "O5", name: "without_stdin_the_program_reads_end_of_file", run: noStdin},
	{clause: "O5", name: "stdin_arrives_whole", run: echoStdin},
	{clause: "O5", name: "write_blocks_while_the_program_does_not_read", run: blockedStdin},
	{clause: "O5", name: "write_after_close_or_end_is_gone", run: stdinGone},
}

var ttyCases = []testCase{
	{clause: "O6", name: "program_has_a_controlling_terminal", needs: needsTTY, run: hasTTY},
	{clause: "O6", name: "resize_raises_SIGWINCH", needs: needsTTY, run: resize},
	{clause: "O6", name: "interrupt_character_raises_SIGINT", needs: needsTTY, run: interrupt},
	{clause: "O6", name: "end_of_the_command_ends_the_terminal", needs: needsTTY, run: ttyDaemon},
}

func (b *box) cat() *proc {
	b.c.Helper()
	return b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
}

func noStdin(c *C) {
	b := c.create()
	p := b.start("cat")
	r := p.finish()
	c.exited("cat", r.Outcome, 0)
	if r.stdout != "" {
		c.Errorf("cat without stdin prints %q", r.stdout)
	}
	p = b.start("hold")
	if _, err := p.WriteStdin(c.ctx(), []byte("x")); err == nil {
		c.Errorf("WriteStdin to a command without stdin succeeded")
	}
	c.ok("Kill", p.Kill(c.ctx()))
}

func echoStdin(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = 4 * run.MiB })
	p := b.cat()
	want := []byte(patternOf(1 << 20))
	for sent := 0; sent < len(want); {
		n, err := p.WriteStdin(c.ctx(), want[sent:min(sent+300_000, len(want))])
		c.ok("WriteStdin", err)
		sent += n
	}
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	c.ok("CloseStdin again", p.CloseStdin(c.ctx()))
	r := p.finish()
	c.exited("cat", r.Outcome, 0)
	if !bytes.Equal([]byte(r.stdout), want) {
		c.Errorf("cat gave back %d bytes, want %d as they were", len(r.stdout), len(want))
	}
	// An empty input is an end of file too.
	p = b.cat()
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	if r := p.finish(); r.stdout != "" || !r.Outcome.Success() {
		c.Errorf("cat of nothing: %v, %q", r.Outcome, r.stdout)
	}
}

func blockedStdin(c *C) {
	b := c.create()
	p := b.exec(execenv.ExecSpec{Argv: []string{probePath, "hold"}, Stdin: true})
	p.await("ready")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	big := make([]byte, 32<<20)
	c.soon("WriteStdin to a program that does not read", func() {
		n, err := p.WriteStdin(ctx, big)
		if err == nil || n >= len(big) {
			c.Errorf("a program that does not read took %d bytes, error %v", n, err)
		}
		if fault.Is(err, fault.Gone) {
			c.Errorf("WriteStdin that ran out of time says the command is gone: %v", err)
		}
	})
	if ctx.Err() == nil {
		c.Errorf("WriteStdin to a program that does not read returned before its context ended")
	}
	// The end of the program ends the write as well.
	wrote := make(chan error, 1)
	go func() {
		_, err := p.WriteStdin(c.ctx(), big)
		wrote <- err
	}()
	c.ok("Kill while stdin is full", p.Kill(c.ctx()))
	c.kind("hold", p.wait().Outcome, run.Cancelled)
	c.soon("WriteStdin when the program ended", func() {
		c.code("WriteStdin when the program ended", <-wrote, fault.Gone)
	})
}

func stdinGone(c *C) {
	b := c.create()
	p := b.cat()
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	_, err := p.WriteStdin(c.ctx(), []byte("x"))
	c.code("WriteStdin after CloseStdin", err, fault.Gone)
	p.wait()
	_, err = p.WriteStdin(c.ctx(), []byte("x"))
	c.code("WriteStdin after the end", err, fault.Gone)

	p = b.cat()
	c.ok("Signal", p.Signal(c.ctx(), syscall.SIGKILL))
	p.wait()
	_, err = p.WriteStdin(c.ctx(), []byte("x"))
	c.code("WriteStdin after the program was killed", err, fault.Gone)
}

func (b *box) terminal(cols, rows uint16, verb string, args ...string) *proc {
	b.c.Helper()
	spec := probe(verb, args...)
	spec.TTY, spec.Stdin = &execenv.WindowSize{Cols: cols, Rows: rows}, true
	return b.exec(spec)
}

func hasTTY(c *C) {
	b := c.create()
	r := b.terminal(91, 33, "tty").finish()
	c.exited("tty", r.Outcome, 0)
	for _, want := range []string{
		"fd 0 terminal true 91x33", "fd 1 terminal true 91x33", "fd 2 terminal true 91x33", "controlling true", "on stderr",
	} {
		if !strings.Contains(r.stdout, want) {
			c.Errorf("probe tty does not print %q:\n%s", want, r.stdout)
		}
	}
	if r.stderr != "" || r.StderrBytes != 0 {
		c.Errorf("with a terminal something is on stderr: %q", r.stderr)
	}
	// Without one, nothing looks like one.
	r = b.run("tty")
	if strings.Contains(r.stdout, "true") || r.stderr != "on stderr\n" {
		c.Errorf("without a terminal probe tty prints %q and %q", r.stdout, r.stderr)
	}
	p := b.terminal(80, 24, "cat")
	_, err := p.WriteStdin(c.ctx(), []byte("typed\n"))
	c.ok("WriteStdin", err)
	p.await("typed")
	_, err = p.WriteStdin(c.ctx(), []byte{4}) // ^D
	c.ok("WriteStdin", err)
	c.exited("cat at end of file", p.wait().Outcome, 0)
}

func resize(c *C) {
	b := c.create()
	p := b.terminal(80, 24, "winch", "2")
	p.await("size 80x24")
	for _, size := range []execenv.WindowSize{{Cols: 100, Rows: 40}, {Cols: 300, Rows: 5}} {
		c.ok("Resize", p.Resize(c.ctx(), size))
		p.await(fmt.Sprintf("size %dx%d", size.Cols, size.Rows))
	}
	c.exited("winch", p.wait().Outcome, 0)
}

func interrupt(c *C) {
	b := c.create()
	p := b.terminal(80, 24, "trap", "2")
	p.await("ready")
	_, err := p.WriteStdin(c.ctx(), []byte{3}) // ^C
	c.ok("WriteStdin", err)
	p.await("got 2")
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("trap", p.wait().Outcome, run.Cancelled)

	p = b.terminal(80, 24, "hold")
	p.await("ready")
	_, err = p.WriteStdin(c.ctx(), []byte{3})
	c.ok("WriteStdin", err)
	c.kind("hold, interrupted", p.wait().Outcome, run.Signalled)
}

func ttyDaemon(c *C) {
	b := c.create()
	p := b.terminal(80, 24, "daemon", "/workspace/beat")
	c.soon("the end of a command whose daemon holds the terminal", func() {
		c.exited("daemon", p.finish().Outcome, 0)
	})
	b.gone("/workspace/beat")
}
