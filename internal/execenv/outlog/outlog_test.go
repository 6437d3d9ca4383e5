package outlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
)

// collect reads the whole log from an offset and checks that offsets are
// gapless on the way.
func collect(t *testing.T, l *Log, from int64) (stdout, stderr []byte) {
	t.Helper()
	next := from
	err := l.Follow(context.Background(), from, func(c execenv.Chunk) error {
		if c.Offset != next {
			t.Errorf("chunk at offset %d, want %d", c.Offset, next)
		}
		next += int64(len(c.Data))
		if c.Stream == execenv.Stdout {
			stdout = append(stdout, c.Data...)
		} else {
			stderr = append(stderr, c.Data...)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("Follow: %v", err)
	}
	return stdout, stderr
}

func TestKeepsStreamsApartAndInOrder(t *testing.T) {
	l := New(1 << 20)
	l.Append(execenv.Stdout, []byte("a\x00\xff"))
	l.Append(execenv.Stderr, []byte("E1"))
	l.Append(execenv.Stdout, []byte("b"))
	l.Append(execenv.Stderr, []byte("E2"))
	l.Close()
	out, errs := collect(t, l, 0)
	if string(out) != "a\x00\xffb" || string(errs) != "E1E2" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	if l.Truncated() {
		t.Error("Truncated with everything kept")
	}
}

func TestEveryOffsetIsAValidStart(t *testing.T) {
	l := New(1 << 20)
	var all []byte
	for i := range 300 {
		s := execenv.Stdout
		if i%3 == 0 {
			s = execenv.Stderr
		}
		p := bytes.Repeat([]byte{byte(i)}, i*7%1013)
		all = append(all, p...)
		l.Append(s, p)
	}
	l.Close()
	for from := 0; from <= len(all)+3; from += 97 {
		var got []byte
		_ = l.Follow(context.Background(), int64(from), func(c execenv.Chunk) error {
			got = append(got, c.Data...)
			return nil
		})
		if want := all[min(from, len(all)):]; !bytes.Equal(got, want) {
			t.Fatalf("from %d: %d bytes, want %d", from, len(got), len(want))
		}
	}
}

func TestCapIsPerStreamAndExact(t *testing.T) {
	l := New(100)
	for range 1000 {
		l.Append(execenv.Stdout, bytes.Repeat([]byte("x"), 33))
	}
	l.Append(execenv.Stderr, []byte("the reason"))
	l.Close()
	out, errs := collect(t, l, 0)
	if len(out) != 100 || string(errs) != "the reason" {
		t.Errorf("kept %d of stdout and %q of stderr", len(out), errs)
	}
	if l.Seen(execenv.Stdout) != 33000 || !l.Truncated() {
		t.Errorf("seen %d, truncated %v", l.Seen(execenv.Stdout), l.Truncated())
	}
}

func TestCapReachedExactlyIsNotTruncated(t *testing.T) {
	l := New(4)
	l.Append(execenv.Stdout, []byte("1234"))
	l.Close()
	if l.Truncated() {
		t.Error("Truncated although nothing was dropped")
	}
}

func TestCutIsToldWithTheFirstByteThatIsDropped(t *testing.T) {
	l := New(3)
	l.Append(execenv.Stderr, []byte("abc"))
	select {
	case <-l.Cut():
		t.Fatal("all was kept, and the log says it was cut")
	default:
	}
	l.Append(execenv.Stderr, []byte("d"))
	l.Append(execenv.Stdout, []byte("defg")) // again
	<-l.Cut()
	if l.Keeps() != 3 {
		t.Errorf("it keeps %d bytes", l.Keeps())
	}
}

func TestWriterNeverWaitsForAStuckReader(t *testing.T) {
	l := New(1 << 20)
	stuck, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var once sync.Once
		_ = l.Follow(context.Background(), 0, func(execenv.Chunk) error {
			once.Do(func() { close(stuck) })
			<-release
			return nil
		})
	})
	l.Append(execenv.Stdout, []byte("x"))
	<-stuck
	for range 1000 {
		l.Append(execenv.Stdout, bytes.Repeat([]byte("y"), 4096))
	}
	l.Close()
	close(release)
	wg.Wait()
}

func TestFollowersSeeWhatIsAppendedWhileTheyRead(t *testing.T) {
	l := New(1 << 24)
	const readers = 8
	var wg sync.WaitGroup
	got := make([]bytes.Buffer, readers)
	for i := range readers {
		wg.Go(func() {
			if err := l.Follow(context.Background(), 0, func(c execenv.Chunk) error {
				got[i].Write(c.Data)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	var want bytes.Buffer
	for i := range 5000 {
		p := fmt.Appendf(nil, "line %d\n", i)
		want.Write(p)
		l.Append(execenv.Stdout, p)
	}
	l.Close()
	wg.Wait()
	for i := range got {
		if !bytes.Equal(got[i].Bytes(), want.Bytes()) {
			t.Errorf("reader %d got %d bytes, want %d", i, got[i].Len(), want.Len())
		}
	}
}

func TestFollowEndsWithItsContextAndWithYield(t *testing.T) {
	l := New(10)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := l.Follow(ctx, 0, func(execenv.Chunk) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Follow on an open log: %v", err)
	}
	l.Append(execenv.Stdout, []byte("x"))
	boom := errors.New("boom")
	if err := l.Follow(context.Background(), 0, func(execenv.Chunk) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Follow: %v, want yield's error", err)
	}
}
