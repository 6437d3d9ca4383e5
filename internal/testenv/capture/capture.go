// Package capture keeps what a server or a process writes for a test that reads
// it meanwhile.
package capture

import (
	"bytes"
	"sync"
)

// Buffer is a log in memory. The zero value is empty and ready.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Bytes is a copy of all that was written so far.
func (b *Buffer) Bytes() []byte { return []byte(b.String()) }

// Tail is the last n bytes of it.
func (b *Buffer) Tail(n int) string {
	s := b.String()
	return s[max(0, len(s)-n):]
}
