package cgroup

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Confirm fails if the kernel enforces anything else than the limits that were
// set: one that was written and not taken must not pass for one that holds.
func (g *Group) Confirm(set Limits) error {
	got, err := g.Limits()
	if err != nil {
		return err
	}
	set.MemoryBytes -= set.MemoryBytes % int64(os.Getpagesize()) // the kernel counts pages
	if got != set {
		return fmt.Errorf("the kernel enforces %s in control group %s, where %s was set", got, g.path, set)
	}
	return nil
}

func (l Limits) String() string {
	return fmt.Sprintf("%d bytes of memory, %d threads, %d thousandths of a processor", l.MemoryBytes, l.PIDs, l.MilliCPU)
}

// Limits reads back what the kernel enforces.
func (g *Group) Limits() (Limits, error) {
	var l Limits
	var quota, period int64
	var err error
	if g.h.v2 {
		if l.MemoryBytes, err = readInt(g.file("", "memory.max")); err != nil {
			return l, fmt.Errorf("cannot read back the memory limit: %w", err)
		}
		if quota, period, err = readPair(g.file("", "cpu.max")); err != nil {
			return l, fmt.Errorf("cannot read back the processor limit: %w", err)
		}
	} else {
		if l.MemoryBytes, err = readInt(g.file("memory", "memory.limit_in_bytes")); err != nil {
			return l, fmt.Errorf("cannot read back the memory limit: %w", err)
		}
		if quota, err = readInt(g.file("cpu", "cpu.cfs_quota_us")); err != nil {
			return l, fmt.Errorf("cannot read back the processor limit: %w", err)
		}
		if period, err = readInt(g.file("cpu", "cpu.cfs_period_us")); err != nil {
			return l, fmt.Errorf("cannot read back the processor limit: %w", err)
		}
	}
	if period > 0 && quota > 0 {
		l.MilliCPU = quota * 1000 / period
	}
	if l.PIDs, err = readInt(g.file("pids", "pids.max")); err != nil {
		return l, fmt.Errorf("cannot read back the limit of processes: %w", err)
	}
	return l, nil
}

// readPair reads "N M".
func readPair(file string) (a, b int64, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	words := strings.Fields(string(data))
	if len(words) != 2 {
		return 0, 0, fmt.Errorf("%s holds %q", file, data)
	}
	if a, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return 0, 0, err
	}
	b, err = strconv.ParseInt(words[1], 10, 64)
	return a, b, err
}
