package execenvtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

var outputCases = []testCase{
	{clause: "O1", name: "both_streams_complete_and_in_order", run: bothStreams},
	{clause: "O1", name: "readable_from_every_offset", run: everyOffset},
	{clause: "O1", name: "many_readers_while_it_grows", run: manyReaders},
	{clause: "O1", name: "offset_past_the_end", run: pastTheEnd},
	{clause: "O1", name: "error_of_yield_is_returned", run: yieldFails},
	{clause: "O1", name: "output_ends_with_its_context", run: outputContext},
	{clause: "O2", name: "output_is_cut_at_the_limit_and_counted", needs: needsOutput, run: cut},
	{clause: "O2", name: "limit_is_per_stream", needs: needsOutput, run: cutPerStream},
	{clause: "O2", name: "limit_reached_exactly_is_not_truncated", needs: needsOutput, run: exactlyFull},
	{clause: "O2", name: "command_can_lower_the_limit_not_raise_it", needs: needsOutput, run: lowered},
	{clause: "O3", name: "flood_without_a_reader_ends", needs: needsOutput, run: unread},
	{clause: "O3", name: "stuck_reader_holds_up_nothing", run: readerIsStuck},
	{clause: "O4", name: "bytes_are_kept_as_they_are", run: exactBytes},
}

// patternOf is what probe flood writes.
func patternOf(n int) string {
	var b strings.Builder
	b.Grow(n)
	for i := range n {
		b.WriteByte(byte(i % 251))
	}
	return b.String()
}

func bothStreams(c *C) {
	b := c.create()
	const n = 2000
	var out, errs strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "o%d\n", i)
		fmt.Fprintf(&errs, "e%d\n", i)
	}
	r := b.run("streams", fmt.Sprint(n))
	if r.stdout != out.String() {
		c.Errorf("stdout is %d bytes, want %d:\n%s", len(r.stdout), out.Len(), clip(r.stdout))
	}
	if r.stderr != errs.String() {
		c.Errorf("stderr is %d bytes, want %d:\n%s", len(r.stderr), errs.Len(), clip(r.stderr))
	}
	if r.StdoutBytes != int64(out.Len()) || r.StderrBytes != int64(errs.Len()) {
		c.Errorf("counted %d and %d bytes, want %d and %d", r.StdoutBytes, r.StderrBytes, out.Len(), errs.Len())
	}
}

// rawLog reads the log as one string of both streams.
func (p *proc) rawLog(from int64) string {
	p.c.Helper()
	var all strings.Builder
	if err := p.Output(p.c.ctx(), from, func(ch execenv.Chunk) error {
		all.Write(ch.Data)
		return nil
	}); err != nil {
		p.c.Errorf("Output(%d): %v", from, err)
	}
	return all.String()
}

func everyOffset(c *C) {
	b := c.create()
	p := b.start("streams", "40")
	p.wait()
	all := p.rawLog(0)
	if len(all) != 2*(10*3+30*4) {
		c.Fatalf("the log is %d bytes", len(all))
	}
	for from := 0; from <= len(all); from++ {
		if got := p.rawLog(int64(from)); got != all[from:] {
			c.Fatalf("from offset %d the log is %q, want %q", from, got, all[from:])
		}
	}
	// The streams do not change with the place where reading starts.
	for _, from := range []int64{1, 7, 100} {
		whole := map[int64]execenv.Stream{}
		_ = p.Output(c.ctx(), 0, func(ch execenv.Chunk) error {
			for i := range ch.Data {
				whole[ch.Offset+int64(i)] = ch.Stream
			}
			return nil
		})
		_ = p.Output(c.ctx(), from, func(ch execenv.Chunk) error {
			for i := range ch.Data {
				if at := ch.Offset + int64(i); whole[at] != ch.Stream {
					c.Errorf("from offset %d byte %d is of %s, from 0 of %s", from, at, ch.Stream, whole[at])
				}
			}
			return nil
		})
	}
}

func manyReaders(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = 4 * run.MiB })
	p := b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
	const readers = 5
	got := make([]string, readers)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() { got[i], _ = p.log(0) })
	}
	var want strings.Builder
	for i := range 50 {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", i*37))
		want.WriteString(line)
		_, err := p.WriteStdin(c.ctx(), []byte(line))
		c.ok("WriteStdin", err)
	}
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	c.soon("readers of an ended command", wg.Wait)
	for i := range got {
		if got[i] != want.String() {
			c.Errorf("reader %d got %d bytes, want %d", i, len(got[i]), want.Len())
		}
	}
}

func pastTheEnd(c *C) {
	b := c.create()
	p := b.start("echo", "short")
	p.wait()
	for _, from := range []int64{6, 7, 1 << 40} {
		if got := p.rawLog(from); got != "" {
			c.Errorf("from offset %d of 6 bytes the log is %q", from, got)
		}
	}
}

func yieldFails(c *C) {
	b := c.create()
	p := b.start("hold")
	boom := errors.New("boom")
	err := p.Output(c.ctx(), 0, func(execenv.Chunk) error { return boom })
	if !errors.Is(err, boom) {
		c.Errorf("Output returns %v, want the error of yield", err)
	}
	// One reader's error is not another's.
	p.await("ready\n")
	c.ok("Kill", p.Kill(c.ctx()))
}

func outputContext(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	c.soon("Output with an ended context", func() {
		if err := p.Output(ended(), 6, func(execenv.Chunk) error { return nil }); err == nil {
			c.Errorf("Output of a running command with an ended context returned nil: that says the command has ended")
		}
	})
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("hold", p.wait().Outcome, run.Cancelled)
}

// flooded is enough to fill every pipe and buffer many times.
const flooded = 200 << 20

func cut(c *C) {
	const keep = 100_000
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = keep })
	r := b.run("flood", "stdout", fmt.Sprint(flooded))
	c.exited("flood", r.Outcome, 0)
	c.touched("flood", r.Outcome, run.LimitOutput)
	if !r.Truncated || r.StdoutBytes != flooded || r.StderrBytes != 0 {
		c.Errorf("wrote %d bytes, the result has %d, %d, truncated %v", flooded, r.StdoutBytes, r.StderrBytes, r.Truncated)
	}
	if r.stdout != patternOf(keep) {
		c.Errorf("kept %d bytes, want the first %d as they were", len(r.stdout), keep)
	}
}

func cutPerStream(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = 1000 })
	r := b.run("streams", "500") // 2390 bytes to each
	if len(r.stdout) != 1000 || len(r.stderr) != 1000 {
		c.Errorf("kept %d and %d bytes, want 1000 of each", len(r.stdout), len(r.stderr))
	}
	if r.StdoutBytes != 2390 || r.StderrBytes != 2390 || !r.Truncated {
		c.Errorf("counted %d and %d bytes, truncated %v", r.StdoutBytes, r.StderrBytes, r.Truncated)
	}
	r = b.run("flood", "stderr", "5000")
	if len(r.stderr) != 1000 || r.StderrBytes != 5000 || r.stdout != "" {
		c.Errorf("stderr: kept %d of %d bytes; stdout %q", len(r.stderr), r.StderrBytes, r.stdout)
	}
	c.touched("flood on stderr", r.Outcome, run.LimitOutput)
}

func exactlyFull(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = 4321 })
	r := b.run("flood", "stdout", "4321")
	if r.Truncated || r.Outcome.Touched(run.LimitOutput) || len(r.stdout) != 4321 {
		c.Errorf("exactly full: kept %d, truncated %v, limits hit %v", len(r.stdout), r.Truncated, r.Outcome.LimitsHit)
	}
}

func lowered(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.OutputBytes = 1000 })
	for limit, want := range map[int64]int{0: 1000, 10: 10, 1000: 1000, 1 << 40: 1000} {
		spec := probe("flood", "stdout", "3000")
		spec.OutputBytes = limit
		if r := b.exec(spec).finish(); len(r.stdout) != want || r.StdoutBytes != 3000 {
			c.Errorf("with %d asked for, %d of %d bytes were kept, want %d of 3000", limit, len(r.stdout), r.StdoutBytes, want)
		}
	}
}

func unread(c *C) {
	b := c.create()
	p := b.start("flood", "stdout", fmt.Sprint(flooded))
	q := b.start("flood", "stderr", fmt.Sprint(flooded))
	if res := p.wait(); res.StdoutBytes != flooded {
		c.Errorf("counted %d bytes, want %d", res.StdoutBytes, flooded)
	}
	if res := q.wait(); res.StderrBytes != flooded {
		c.Errorf("counted %d bytes, want %d", res.StderrBytes, flooded)
	}
}

func readerIsStuck(c *C) {
	b := c.create()
	p := b.start("flood", "stdout", "3000000")
	stuck, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	wg.Go(func() {
		var once sync.Once
		_ = p.Output(c.ctx(), 0, func(execenv.Chunk) error {
			once.Do(func() { close(stuck) })
			<-release
			return nil
		})
	})
	<-stuck
	c.exited("flood with a stuck reader", p.wait().Outcome, 0)
	c.soon("reading beside a stuck reader", func() {
		if out, _ := p.log(0); int64(len(out)) != min(3000000, b.spec.Limits.OutputBytes) {
			c.Errorf("beside a stuck reader another reads %d bytes", len(out))
		}
	})
	if got := b.output("echo", "next"); got != "next\n" {
		c.Errorf("beside a stuck reader the next command prints %q", got)
	}
}

func exactBytes(c *C) {
	b := c.create()
	r := b.run("bytes")
	var want strings.Builder
	for i := range 256 {
		want.WriteByte(byte(i))
	}
	if r.stdout != want.String() {
		c.Errorf("stdout is %q", r.stdout)
	}
	if wantErr := "\xff\xfe\x00\xc3\xe2\x82é€\xf0\x9f"; r.stderr != wantErr {
		c.Errorf("stderr is %q, want %q", r.stderr, wantErr)
	}
}
