package execenvtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// probe returns the contents of the program to put into sandboxes.
func (c *C) probe() []byte {
	c.Helper()
	if c.h.Probe != nil {
		return c.h.Probe
	}
	b, err := builtProbe()
	if err != nil {
		c.Fatalf("cannot build the probe: %v", err)
	}
	return b
}

// builtProbe is the file that AGENTDOCK_TEST_PROBE names, for machines without
// Go, or else builds the real probe, once in a test process.
var builtProbe = sync.OnceValues(func() ([]byte, error) {
	if file := os.Getenv("AGENTDOCK_TEST_PROBE"); file != "" {
		return os.ReadFile(file)
	}
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "probe")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out,
		"github.com/agentdock/agentdock/internal/execenv/execenvtest/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, &buildError{err, string(msg)}
	}
	return os.ReadFile(out)
})

type buildError struct {
	err    error
	output string
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.output }

// BuildProbe returns the real probe's contents, for tests of an adapter's own
// that want the same hostile programs.
func BuildProbe(t testing.TB) []byte {
	t.Helper()
	b, err := builtProbe()
	if err != nil {
		t.Fatalf("cannot build the probe: %v", err)
	}
	return b
}
