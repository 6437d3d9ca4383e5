package blobtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/fault"
)

// pattern is n bytes of which no two pieces are alike: blocks that carry their
// number.
func pattern(n int, seed byte) []byte {
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i%251) + seed
	}
	p := make([]byte, 0, n)
	for number := uint64(0); len(p) < n; number++ {
		binary.LittleEndian.PutUint64(block, number)
		p = append(p, block[:min(len(block), n-len(p))]...)
	}
	return p
}

func longName() string { return strings.Repeat("n", blob.MaxNameBytes) }

func longKey() string {
	key := "a/" + longName() + "/" + longName() + "/"
	return key + strings.Repeat("k", blob.MaxKeyBytes-len(key))
}

func put(t *testing.T, s Storage, key string, data []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatalf("cannot put %s: %v", key, err)
	}
}

func read(t *testing.T, s Storage, key string) []byte {
	t.Helper()
	r, info, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatalf("cannot open %s: %v", key, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("cannot read %s: %v", key, err)
	}
	if info.Key != key || info.Bytes != int64(len(data)) {
		t.Errorf("%s has %d bytes; its info is %+v", key, len(data), info)
	}
	return data
}

func holds(t *testing.T, s Storage, key string, want []byte) {
	t.Helper()
	if got := read(t, s, key); !bytes.Equal(got, want) {
		t.Errorf("%s holds %d bytes, which are not the %d that were put", key, len(got), len(want))
	}
}

func isMissing(t *testing.T, s Storage, key string) {
	t.Helper()
	r, info, err := s.Open(t.Context(), key)
	if !fault.Is(err, fault.NotFound) {
		if err == nil {
			r.Close()
		}
		t.Errorf("%s must not exist: %+v, %v", key, info, err)
	}
}

func nothing(t *testing.T, s Storage) {
	t.Helper()
	if left := s.Files(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// hooked calls hook once, when at bytes were read.
type hooked struct {
	io.Reader
	at, n int64
	hook  func()
}

func (h *hooked) Read(p []byte) (int, error) {
	if h.n >= h.at && h.hook != nil {
		hook := h.hook
		h.hook = nil
		hook()
	}
	n, err := h.Reader.Read(p)
	h.n += int64(n)
	return n, err
}
