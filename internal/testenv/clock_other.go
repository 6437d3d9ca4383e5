//go:build !amd64

package testenv

import (
	"testing"
	"time"
)

// CanSetClocks says whether SetClock works here.
const CanSetClocks = false

// SetClock replaces machine code, which is written for amd64 alone.
func SetClock(t testing.TB, _ int, _ time.Duration) {
	t.Helper()
	t.Fatal("the clock of a process can be set on amd64 only")
}
