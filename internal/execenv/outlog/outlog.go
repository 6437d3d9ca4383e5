// Package outlog keeps a command's output: a log of two streams, bounded,
// readable by anyone from any offset while it grows and after it ended.
// Writers never wait for readers (execenv O1 to O4).
package outlog

import (
	"context"
	"sort"
	"sync"

	"github.com/agentdock/agentdock/internal/execenv"
)

// segmentBytes is how much of one stream is gathered before a new segment
// begins. Small writes of one stream share a segment.
const segmentBytes = 32 << 10

// Log is one command's output. Make it with New.
type Log struct {
	keep int64 // of each stream

	mu       sync.Mutex
	segments []segment
	kept     [3]int64 // by execenv.Stream
	seen     [3]int64
	size     int64 // kept bytes of both streams
	closed   bool
	dropped  bool
	changed  chan struct{} // closed and replaced whenever the log grows or ends
	cut      chan struct{} // closed when something is dropped for the first time
}

// segment is a run of bytes of one stream. Its data only ever grows, within
// its capacity, so readers may hold a prefix without the lock.
type segment struct {
	stream execenv.Stream
	offset int64
	data   []byte
}

// New makes a log that keeps the first keep bytes of each stream.
func New(keep int64) *Log {
	return &Log{keep: keep, changed: make(chan struct{}), cut: make(chan struct{})}
}

// Append adds p, in whole or as far as it is kept. p may be reused afterwards.
func (l *Log) Append(stream execenv.Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[stream] += int64(len(p))
	if room := l.keep - l.kept[stream]; int64(len(p)) > room {
		p = p[:max(room, 0)]
		if !l.dropped {
			l.dropped = true
			close(l.cut)
		}
	}
	if len(p) == 0 || l.closed {
		return
	}
	l.kept[stream] += int64(len(p))
	for len(p) > 0 {
		n := len(l.segments)
		if n == 0 || l.segments[n-1].stream != stream || len(l.segments[n-1].data) == cap(l.segments[n-1].data) {
			size := min(max(len(p), 256), segmentBytes)
			l.segments = append(l.segments, segment{stream: stream, offset: l.size, data: make([]byte, 0, size)})
			n++
		}
		last := &l.segments[n-1]
		take := min(len(p), cap(last.data)-len(last.data))
		last.data = append(last.data, p[:take]...)
		p = p[take:]
		l.size += int64(take)
	}
	l.wake()
}

// Close ends the log. Followers return once they have read it all.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wake()
	}
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Seen is how many bytes of a stream were written, kept or not.
func (l *Log) Seen(stream execenv.Stream) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[stream]
}

// Truncated reports whether anything was dropped.
func (l *Log) Truncated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen != l.kept
}

// Cut is closed once something was dropped.
func (l *Log) Cut() <-chan struct{} { return l.cut }

// Keeps is how many bytes of each stream are kept at most.
func (l *Log) Keeps() int64 { return l.keep }

// Follow passes the log from offset from on to yield until the log has ended.
// An offset past the end yields what comes there later, or nothing.
func (l *Log) Follow(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	from = max(from, 0)
	for {
		chunk, changed, ended := l.next(from)
		switch {
		case len(chunk.Data) > 0:
			if err := yield(chunk); err != nil {
				return err
			}
			from = chunk.Offset + int64(len(chunk.Data))
			if err := ctx.Err(); err != nil {
				return err
			}
		case ended:
			return nil
		default:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
		}
	}
}

// next returns the longest chunk at offset from, or what to wait for.
func (l *Log) next(from int64) (chunk execenv.Chunk, changed <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from >= l.size {
		return execenv.Chunk{}, l.changed, l.closed
	}
	i := sort.Search(len(l.segments), func(i int) bool {
		s := l.segments[i]
		return s.offset+int64(len(s.data)) > from
	})
	s := l.segments[i]
	return execenv.Chunk{Stream: s.stream, Offset: from, Data: s.data[from-s.offset:]}, nil, false
}
