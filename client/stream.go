package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/api"
)

// place is where a reader is in a stream that may break, and how to go on there.
type place[E any] interface {
	// what names the stream, for people.
	what() string
	// request asks for what comes after this place.
	request() call
	// take moves on past an event, and says what it is to the caller.
	take(event E) (verdict, error)
}

type verdict int

const (
	passed verdict = iota // nothing: a sign of life, or known already
	news
	last // news, and there is no more
)

var (
	errEnough = errors.New("the caller has enough")
	errAgain  = errors.New("the stream is to be opened again")
)

// follow goes through a stream over connections that break: nothing comes twice
// and nothing is missed. Each loop begins anew, at the place that begin returns.
func follow[E any](ctx context.Context, c *Client, begin func() place[E]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		f := &follower[E]{c: c, at: begin(), yield: yield}
		if err := f.run(ctx); err != nil && !errors.Is(err, errEnough) {
			var none E
			yield(none, err)
		}
	}
}

type follower[E any] struct {
	c     *Client
	at    place[E]
	yield func(E, error) bool
	// progress says that something came over this connection.
	progress bool
}

func (f *follower[E]) run(ctx context.Context) error {
	wait, failures := f.c.firstWait, 0
	for {
		f.progress = false
		err := f.once(ctx)
		switch {
		case err == nil, errors.Is(err, errEnough):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errAgain) && !passing(err):
			return err
		}
		if f.progress {
			wait, failures = f.c.firstWait, 0
		}
		if failures++; failures >= f.c.attempts {
			return fmt.Errorf("cannot follow %s: %w: %w", f.at.what(), ErrInterrupted, err)
		}
		if err := f.c.pause(ctx, wait, err); err != nil {
			return err
		}
		wait = min(2*wait, f.c.maxWait)
	}
}

// once reads one connection to its end. It returns nil when there is no more to
// come.
func (f *follower[E]) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := f.c.open(ctx, f.at.request())
	if err != nil {
		return err
	}
	defer res.Body.Close()
	silent := time.AfterFunc(f.c.silence, cancel)
	defer silent.Stop()
	in := json.NewDecoder(res.Body)
	for {
		silent.Reset(f.c.silence)
		var event E
		if err := in.Decode(&event); err != nil {
			return fmt.Errorf("%w: %w", errAgain, err) // without a last word: it was cut
		}
		silent.Stop() // the caller may take its time
		is, err := f.at.take(event)
		switch {
		case err != nil:
			return err
		case is == passed:
			continue
		}
		f.progress = true
		if !f.yield(event, nil) {
			return errEnough
		}
		if is == last {
			return nil
		}
	}
}

// interrupted is what a stream that the service ended is to the caller: the last
// of what there is now, or a reason to open it again.
func interrupted(by *api.LogInterrupted) (verdict, error) {
	switch by.Reason {
	case "not_following":
		return last, nil
	case "access_ended":
		return passed, &Error{Problem: api.Problem{
			Status: http.StatusUnauthorized, Code: api.ProblemCodeUnauthenticated, Title: http.StatusText(http.StatusUnauthorized),
			Detail: "the API key is not valid any more",
		}}
	}
	return passed, fmt.Errorf("%w: %s", errAgain, by.Reason)
}

// ndjson asks for a stream as one object per line, from a place on.
func ndjson(from int64) http.Header {
	header := http.Header{"Accept": {"application/x-ndjson"}}
	if from > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(from, 10))
	}
	return header
}

// piece is a part of what a command wrote.
type piece struct {
	stream, text string
	bytes        []byte
}

func (p piece) data() []byte {
	if len(p.bytes) > 0 {
		return p.bytes
	}
	return []byte(p.text)
}

// copyOutput writes the output in events to two writers, until one of them has
// the end.
func copyOutput[E, R any](events iter.Seq2[E, error], stdout, stderr io.Writer, read func(E) (output *piece, end *R)) (*R, error) {
	for event, err := range events {
		if err != nil {
			return nil, err
		}
		output, end := read(event)
		if end != nil {
			return end, nil
		}
		if output == nil {
			continue
		}
		to := stdout
		if output.stream == "stderr" {
			to = stderr
		}
		if _, err := to.Write(output.data()); err != nil {
			return nil, err
		}
	}
	return nil, ErrInterrupted
}
