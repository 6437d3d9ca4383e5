package blobtest

import (
	"bytes"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

func away(t *testing.T, s Storage) {
	want := []byte("kept")
	put(t, s, "a/b", want)
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	back := s.Away(t)
	started := time.Now()
	calls := map[string]func() error{
		"put": func() error {
			_, err := s.Put(t.Context(), "a/c", bytes.NewReader(want), int64(len(want)))
			return err
		},
		"open": func() error {
			r, _, err := s.Open(t.Context(), "a/b")
			if err == nil {
				r.Close()
			}
			return err
		},
		"delete":        func() error { return s.Delete(t.Context(), "a/b") },
		"delete prefix": func() error { return s.DeletePrefix(t.Context(), "a/") },
		"ping":          func() error { return s.Ping(t.Context()) },
	}
	for name, call := range calls {
		if err := call(); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s while the storage is away: %v", name, err)
		}
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("five calls took %s to find out that the storage is away", took)
	}
	back()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping after the storage came back: %v", err)
	}
	holds(t, s, "a/b", want)
	isMissing(t, s, "a/c")
	put(t, s, "a/c", want)
	holds(t, s, "a/c", want)
}

// awayInTheMiddle: the storage goes while a blob is written. The blob is whole
// or not there, and can be put again.
func awayInTheMiddle(t *testing.T, s Storage) {
	want := pattern(40<<20, 9)
	var back func()
	r := &hooked{Reader: bytes.NewReader(want), at: 20 << 20, hook: func() { back = s.Away(t) }}
	_, err := s.Put(t.Context(), "a/b", r, -1)
	back()
	switch {
	case err == nil:
		holds(t, s, "a/b", want)
	case !fault.Is(err, fault.Unavailable):
		t.Errorf("the storage went away: %v", err)
	default:
		isMissing(t, s, "a/b")
	}
	put(t, s, "a/b", want)
	holds(t, s, "a/b", want)
}

func full(t *testing.T, s Storage) {
	small := []byte("small")
	put(t, s, "a/small", small)
	for _, said := range []int64{-1, SmallBytes} {
		_, err := s.Put(t.Context(), "a/big", bytes.NewReader(pattern(SmallBytes, 1)), said)
		if !fault.Is(err, fault.Exhausted) && !fault.Is(err, fault.Unavailable) {
			t.Errorf("put into a storage that is too small: %v", err)
		}
		isMissing(t, s, "a/big")
	}
	holds(t, s, "a/small", small)
	// All the room is free again.
	half := pattern(1<<20, 2)
	put(t, s, "a/half", half)
	holds(t, s, "a/half", half)
}

// memoryIsBounded reads and writes more than it may use.
func memoryIsBounded(t *testing.T, s Storage) {
	const size, most = 256 << 20, 64 << 20
	var before, peak uint64
	look := func() {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}
	look()
	before, peak = peak, 0
	var hook func()
	r := &hooked{Reader: io.LimitReader(zeros{}, size), at: 32 << 20}
	hook = func() {
		look()
		r.at += 32 << 20
		r.hook = hook
	}
	r.hook = hook
	if _, err := s.Put(t.Context(), "a/b", r, -1); err != nil {
		t.Fatal(err)
	}
	in, info, err := s.Open(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if info.Bytes != size {
		t.Errorf("%d bytes are kept of %d", info.Bytes, size)
	}
	for range 8 {
		if _, err := io.CopyN(io.Discard, in, size/8); err != nil {
			t.Fatal(err)
		}
		look()
	}
	if grown := int64(peak) - int64(before); grown > most {
		t.Errorf("a blob of %d bytes took %d bytes of memory", size, grown)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
