package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

func TestAHostThatDoesNotConfineIsRefused(t *testing.T) {
	c := defaults()
	c.CgroupParent = "test-of-stamps-" + filepath.Base(t.TempDir())
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guest, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	err := verify(c, guest, slog.New(slog.DiscardHandler), func(context.Context) error {
		return fault.Wrap(fault.Unsupported, errors.New("the kernel says no"), "a sandbox does not start on this host")
	})
	if err == nil || !strings.Contains(err.Error(), "a sandbox does not start on this host") || !strings.Contains(err.Error(), "the kernel says no") {
		t.Errorf("error is %v", err)
	}
	if stamp, _ := stampPath(c, guest); stampHolds(stamp) {
		t.Error("there is a stamp after a failure")
	}
}

// Only a service that lives for its caller believes a stamp, and only one for
// the same programs.
func TestStamps(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("missing: root, to start the service as it is")
	}
	c := defaults()
	c.CgroupParent = fmt.Sprintf("test-of-stamps-%d", os.Getpid())
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guest, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	tries := 0
	try := func(context.Context) error { tries++; return nil }
	start := func() {
		t.Helper()
		if err := verify(c, guest, slog.New(slog.DiscardHandler), try); err != nil {
			t.Fatal(err)
		}
		if stamp, err := stampPath(c, guest); err == nil {
			t.Cleanup(func() { _ = os.Remove(stamp) })
		}
	}
	start() // a lasting one: looks
	start() // again
	c.ExitWithFD = 4
	start() // takes its word
	if tries != 2 {
		t.Errorf("tried %d times, want 2", tries)
	}
	if err := os.WriteFile(guest, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	start()
	if tries != 3 {
		t.Errorf("with another helper tried %d times, want 3", tries)
	}
	stamp, err := stampPath(c, guest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(stamp, 0o666); err != nil {
		t.Fatal(err)
	}
	if start(); tries != 4 {
		t.Error("a stamp that others can write is believed")
	}
}
