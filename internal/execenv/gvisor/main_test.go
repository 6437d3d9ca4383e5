package gvisor

import (
	"os"
	"testing"
)

// TestMain lets the test binary be what sandboxes are made from, as
// agentdock-execd is in production.
func TestMain(m *testing.M) {
	Entry()
	empty, err := emptyFile()
	if err != nil {
		panic(err)
	}
	// go test gives the null device, whose owner gVisor would change.
	os.Stdin = empty
	code := m.Run()
	if dir, err := testDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}
