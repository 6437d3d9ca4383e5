package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var logCases = []testCase{
	{clause: "L8", name: "entries_are_numbered", run: logNumbered},
	{clause: "L8", name: "replays_and_overlaps", run: logReplay},
	{clause: "L8", name: "hole_is_refused", run: logHole},
	{clause: "L8", name: "successor_goes_on", run: logSuccessor},
	{clause: "L8", name: "appends_raced", run: logRaced},
	{clause: "L8", name: "reader_gets_as_many_as_fit", run: logPages},
	{clause: "L8", name: "reader_during_appends", run: logReader},
	{clause: "L8", name: "any_bytes", run: logBytes},
}

func entry(step int, offset int, data string) run.LogEntry {
	return run.LogEntry{Attempt: 1, Step: step, Stream: "stdout", Offset: int64(offset), Data: []byte(data)}
}

func logNumbered(c *C) {
	got := c.running()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	first := entry(0, 0, "ab")
	first.At = at
	second := entry(0, 2, "c")
	second.Stream, second.At = "stderr", at
	end, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{first, second})
	c.ok(err)
	other := entry(1, 0, "x")
	other.At = at
	_, err = c.AppendLog(c.ctx, got.Lease, []run.LogEntry{other})
	c.ok(err)
	first.Seq, second.Seq, other.Seq = 1, 2, 3
	if d := cmp.Diff([]run.LogEntry{first, second, other}, c.log(got.Job)); d != "" || end != 3 {
		c.Errorf("the log ends at %d: %s", end, d)
	}
	for step, want := range []int64{3, 1, 0} {
		if end, err := c.LogEnd(c.ctx, got.Lease, step); err != nil || end != want {
			c.Errorf("the log of step %d ends at %d, %v; want %d", step, end, err, want)
		}
	}
}

// logReplay appends pieces of one text, in random places up to its end, as a
// worker does that does not know what has arrived.
func logReplay(c *C) {
	got := c.running()
	want := strings.Repeat("0123456789abcdef", 16)
	random := rand.New(rand.NewPCG(1, 2))
	end := 0
	for end < len(want) {
		from := random.IntN(end + 1)
		var entries []run.LogEntry
		at := from
		for range 1 + random.IntN(3) {
			n := min(random.IntN(20), len(want)-at)
			entries = append(entries, entry(0, at, want[at:at+n]))
			at += n
		}
		said, err := c.AppendLog(c.ctx, got.Lease, entries)
		c.ok(err)
		end = max(end, at)
		if said != int64(end) {
			c.Fatalf("the log ends at %d, want %d", said, end)
		}
	}
	log := c.log(got.Job)
	if text := c.text(log, 1, 0); text != want {
		c.Errorf("the log is %q", text)
	}
	// Bytes that are on record stay as they are.
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, strings.Repeat("!", len(want)))})
	c.ok(err)
	if d := cmp.Diff(log, c.log(got.Job)); d != "" {
		c.Error(d)
	}
}

func logHole(c *C) {
	got := c.running()
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, "abc")})
	c.ok(err)
	for name, entries := range map[string][]run.LogEntry{
		"after the end":     {entry(0, 4, "x")},
		"between entries":   {entry(0, 3, "d"), entry(0, 5, "x")},
		"of a step":         {entry(1, 3, "x")},
		"in the wrong turn": {entry(0, 4, "e"), entry(0, 3, "d")},
	} {
		if _, err := c.AppendLog(c.ctx, got.Lease, entries); !fault.Is(err, fault.Conflict) {
			c.Errorf("a hole %s: %v", name, err)
		}
	}
	for name, entries := range map[string][]run.LogEntry{
		"no entries":      nil,
		"two steps":       {entry(0, 3, "d"), entry(1, 0, "x")},
		"another attempt": {{Attempt: 2, Stream: "stdout", Data: []byte("x")}},
	} {
		if _, err := c.AppendLog(c.ctx, got.Lease, entries); !fault.Is(err, fault.Invalid) {
			c.Errorf("%s: %v", name, err)
		}
	}
	if text := c.text(c.log(got.Job), 1, 0); text != "abc" {
		c.Errorf("the log is %q", text)
	}
}

func logSuccessor(c *C) {
	old := c.running()
	_, err := c.AppendLog(c.ctx, old.Lease, []run.LogEntry{entry(0, 0, "first ")})
	c.ok(err)
	c.expire(old.Lease)
	got := c.claim()
	end, err := c.LogEnd(c.ctx, got.Lease, 0)
	c.ok(err)
	_, err = c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, int(end), "second")})
	c.ok(err)
	_, err = c.AppendLog(c.ctx, old.Lease, []run.LogEntry{entry(0, int(end), "late")})
	c.fails(err, fault.Gone)
	if text := c.text(c.log(got.Job), 1, 0); text != "first second" {
		c.Errorf("the log is %q", text)
	}
}

// logRaced: a repeat overtakes the call it repeats.
func logRaced(c *C) {
	got := c.running()
	var want bytes.Buffer
	for i := range rounds {
		piece := fmt.Sprintf("%d;", i)
		at := want.Len()
		together(4, func(int) {
			if _, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, at, piece)}); err != nil {
				c.Errorf("append: %v", err)
			}
		})
		want.WriteString(piece)
	}
	if text := c.text(c.log(got.Job), 1, 0); text != want.String() {
		c.Errorf("the log is %q", text)
	}
}

func logPages(c *C) {
	got := c.running()
	at := 0
	for _, n := range []int{10, 20, 500, 5, 5} {
		_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, at, strings.Repeat("x", n))})
		c.ok(err)
		at += n
	}
	for _, tc := range []struct {
		after    int64
		maxBytes int
		want     []int64
	}{
		{0, 30, []int64{1, 2}}, {0, 29, []int64{1}}, {0, 1, []int64{1}}, {0, 0, []int64{1}},
		{2, 100, []int64{3}}, {3, 100, []int64{4, 5}}, {5, 100, nil}, {99, 100, nil}, {-1, 1000, []int64{1, 2, 3, 4, 5}},
	} {
		page, err := c.Log(c.ctx, got.Job.TenantID, got.Job.ID, tc.after, tc.maxBytes)
		c.ok(err)
		var seqs []int64
		for _, e := range page {
			seqs = append(seqs, e.Seq)
		}
		if d := cmp.Diff(tc.want, seqs); d != "" {
			c.Errorf("after %d, %d bytes: %s", tc.after, tc.maxBytes, d)
		}
	}
}

// logReader follows the log while it grows, and misses nothing.
func logReader(c *C) {
	got := c.running()
	const pieces = 60
	var want strings.Builder
	for i := range pieces {
		fmt.Fprintf(&want, "%d;", i)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		at := 0
		for i := range pieces {
			piece := fmt.Sprintf("%d;", i)
			if _, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, at, piece)}); err != nil {
				c.Errorf("append: %v", err)
				return
			}
			at += len(piece)
		}
	})
	var read []run.LogEntry
	var after int64
	c.eventually("the end of the log", func() bool {
		page, err := c.Log(c.ctx, got.Job.TenantID, got.Job.ID, after, 10)
		c.ok(err)
		for _, e := range page {
			read, after = append(read, e), e.Seq
		}
		return after == pieces
	})
	wg.Wait()
	if text := c.text(read, 1, 0); text != want.String() {
		c.Errorf("read %q", text)
	}
}

func logBytes(c *C) {
	got := c.running()
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	big := bytes.Repeat(all, 1024)
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, string(all)), entry(0, 256, ""), entry(0, 256, string(big))})
	c.ok(err)
	if text := c.text(c.log(got.Job), 1, 0); text != string(all)+string(big) {
		c.Errorf("%d bytes came back", len(text))
	}
}
