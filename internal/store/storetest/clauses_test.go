package storetest

import (
	"testing"

	"github.com/agentdock/agentdock/internal/clauses"
)

func TestEveryClauseHasACase(t *testing.T) { clauses.Hold(t, "../store.go", Cases()) }
