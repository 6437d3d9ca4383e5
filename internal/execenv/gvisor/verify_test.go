package gvisor

import (
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
)

func TestVerifyHoldsHereAndLeavesNothing(t *testing.T) {
	testenv.RequireRoot(t)
	env := newTestEnvironment(t)
	began := time.Now()
	if err := inner(env).Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("took %s", time.Since(began))
	if infos, err := env.List(t.Context()); err != nil || len(infos) > 0 {
		t.Errorf("left: %v, %v", infos, err)
	}
}
