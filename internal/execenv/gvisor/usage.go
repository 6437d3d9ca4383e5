package gvisor

import (
	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/run"
)

// usageOf is what the sandbox uses of memory and processors.
//
// Where its files are on disk, the host caches them, within the memory limit and
// only with what programs leave. The kernel's peak has that in it, and is the
// limit soon after a program has written much. It says nothing about the
// program, so that the peak is the highest of samples without the cache
// (watchDisk). At an end for want of memory nothing was left to the cache, and
// the kernel's own numbers are right.
func (b *box) usageOf(s cgroup.Stats) run.Usage {
	u := run.Usage{MemoryBytes: s.MemoryBytes, PeakMemoryBytes: s.PeakMemoryBytes, CPU: s.CPU}
	if !b.onDisk || s.OOMKills > 0 {
		return u
	}
	cached, err := b.group.FileBytes()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		u.MemoryBytes = max(0, s.MemoryBytes-cached)
		b.peakMemory = max(b.peakMemory, u.MemoryBytes)
	}
	u.PeakMemoryBytes = min(b.peakMemory, s.PeakMemoryBytes)
	return u
}

// withPlaces adds what init says of the writable places, of which the first is
// the workspace.
func withPlaces(u run.Usage, places []answer.Place) run.Usage {
	if len(places) > 0 {
		u.DiskBytes, u.Inodes = places[0].Used, places[0].UsedInodes
	}
	return u
}
