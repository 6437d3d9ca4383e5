package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/agentdock/agentdock/internal/fault"
)

// sizes are about the buffers and parts that adapters have.
var sizes = []int{0, 1, 4095, 256 << 10, 5<<20 - 1, 5 << 20, 5<<20 + 1, 17 << 20}

func roundTrips(t *testing.T, s Storage) {
	for _, size := range sizes {
		for _, known := range []bool{true, false} {
			want := pattern(size, byte(size))
			said := int64(size)
			if !known {
				said = -1
			}
			// One that only reads: an adapter must not rely on Seek.
			info, err := s.Put(t.Context(), "a/b", io.MultiReader(bytes.NewReader(want)), said)
			if err != nil {
				t.Fatalf("put of %d bytes, known %v: %v", size, known, err)
			}
			if info.Key != "a/b" || info.Bytes != int64(size) {
				t.Errorf("put of %d bytes: %+v", size, info)
			}
			holds(t, s, "a/b", want)
		}
	}
}

var errReader = errors.New("the reader failed")

func readerFails(t *testing.T, s Storage) {
	for _, size := range sizes {
		for _, said := range []int64{-1, int64(size) + 10} {
			r := io.MultiReader(bytes.NewReader(pattern(size, 1)), iotest.ErrReader(errReader))
			if _, err := s.Put(t.Context(), "a/b", r, said); !errors.Is(err, errReader) {
				t.Errorf("reader failed after %d bytes: put says %v", size, err)
			}
			isMissing(t, s, "a/b")
		}
	}
	nothing(t, s)
}

func readerFailsOver(t *testing.T, s Storage) {
	old := pattern(1000, 2)
	put(t, s, "a/b", old)
	r := io.MultiReader(bytes.NewReader(pattern(6<<20, 3)), iotest.ErrReader(errReader))
	if _, err := s.Put(t.Context(), "a/b", r, -1); !errors.Is(err, errReader) {
		t.Errorf("put says %v", err)
	}
	holds(t, s, "a/b", old)
}

func wrongSize(t *testing.T, s Storage) {
	for _, size := range []int{0, 1, 1000, 6 << 20} {
		for _, off := range []int64{-1, 1} {
			said := int64(size) + off
			if said < 0 {
				continue
			}
			_, err := s.Put(t.Context(), "a/b", bytes.NewReader(pattern(size, 1)), said)
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%d bytes came of %d: %v", size, said, err)
			}
			isMissing(t, s, "a/b")
		}
	}
	nothing(t, s)
}

func contextEnds(t *testing.T, s Storage) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &hooked{Reader: bytes.NewReader(pattern(12<<20, 1)), at: 7 << 20, hook: cancel}
	if _, err := s.Put(ctx, "a/b", r, -1); err == nil {
		t.Error("put went on although its context had ended")
	}
	isMissing(t, s, "a/b")
	nothing(t, s)
}

func neverSeenInPart(t *testing.T, s Storage) {
	look := func() { isMissing(t, s, "a/b") }
	want := pattern(12<<20, 5)
	r := &hooked{Reader: bytes.NewReader(want), at: 7 << 20, hook: look}
	if _, err := s.Put(t.Context(), "a/b", r, int64(len(want))); err != nil {
		t.Fatal(err)
	}
	holds(t, s, "a/b", want)
}

func replaces(t *testing.T, s Storage) {
	for _, size := range []int{6 << 20, 10, 0, 100} {
		want := pattern(size, byte(size+1))
		put(t, s, "a/b", want)
		holds(t, s, "a/b", want)
	}
}

func concurrentPuts(t *testing.T, s Storage) {
	const writers = 8
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if _, err := s.Put(t.Context(), "a/b", bytes.NewReader(pattern(100_000+i, byte(i))), -1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := read(t, s, "a/b")
	i := len(got) - 100_000
	if i < 0 || i >= writers || !bytes.Equal(got, pattern(len(got), byte(i))) {
		t.Errorf("there is a mixture, of %d bytes", len(got))
	}
}

func keys(t *testing.T, s Storage) {
	for _, key := range []string{"0", "-", "_", "a.b-c_D", "Z.z/...", "a/.hidden", "a/-", longName(), longKey()} {
		want := []byte("at " + key)
		put(t, s, key, want)
		holds(t, s, key, want)
	}
}

func noKeys(t *testing.T, s Storage) {
	bad := []string{"", "/", "a/", "/a", "a//b", ".", "..", "a/..", "../a", "a/./b", "a b", "a\x00b", "ä", "a\\b", "a,b", "a:b", "%41",
		longName() + "x", longKey() + "x"}
	for _, key := range bad {
		if _, err := s.Put(t.Context(), key, bytes.NewReader(nil), 0); !fault.Is(err, fault.Invalid) {
			t.Errorf("put %q: %v", key, err)
		}
		if r, _, err := s.Open(t.Context(), key); !fault.Is(err, fault.Invalid) {
			t.Errorf("open %q: %v, %v", key, r, err)
		}
		if err := s.Delete(t.Context(), key); !fault.Is(err, fault.Invalid) {
			t.Errorf("delete %q: %v", key, err)
		}
		if err := s.DeletePrefix(t.Context(), key+"/"); !fault.Is(err, fault.Invalid) {
			t.Errorf("delete below %q: %v", key+"/", err)
		}
	}
	for _, prefix := range []string{"a", "", "/"} {
		if err := s.DeletePrefix(t.Context(), prefix); !fault.Is(err, fault.Invalid) {
			t.Errorf("delete below %q: %v", prefix, err)
		}
	}
	nothing(t, s)
}

func concurrentKeys(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("a/%d/x/%d", i%7, i))
	}
	return all
}
