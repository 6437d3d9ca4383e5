package main

import (
	"errors"

	"github.com/agentdock/agentdock/internal/execenv"
)

// runtimeEntry is where this binary becomes a part of a sandbox: the isolating
// runtime starts it again under names of its own (argv[0]). It reports whether
// it did that, and the process has then done its work.
func runtimeEntry() bool { return false }

// newEnvironment opens the environment that this binary was built with, and
// returns what closes it.
func newEnvironment(config) (execenv.Environment, func() error, error) {
	return nil, nil, errors.New("cannot start: no environment is built in")
}
