package docker

import (
	"context"
	"slices"

	"github.com/agentdock/agentdock/internal/execenv"
)

// Execs implements execenv.Sandbox.
func (b *box) Execs(context.Context) ([]execenv.ExecInfo, error) {
	if err := b.known(); err != nil {
		return nil, err
	}
	var infos []execenv.ExecInfo
	for _, c := range b.commands() {
		select {
		case <-c.started:
		default:
			continue // whether it will be one is not known yet
		}
		if c.startErr != nil {
			continue
		}
		info := execenv.ExecInfo{
			ID: c.id, Argv: c.spec.Argv, Dir: c.spec.Dir, TTY: c.spec.TTY != nil, Stdin: c.spec.Stdin, StartedAt: c.startTime,
		}
		select {
		case <-c.done:
			result := c.result
			info.Result = &result
		default:
		}
		infos = append(infos, info)
	}
	slices.SortStableFunc(infos, func(a, b execenv.ExecInfo) int { return a.StartedAt.Compare(b.StartedAt) })
	return infos, nil
}
