package cgroup

import (
	"errors"
	"os"
	"time"
)

func (g *Group) limitV1(l Limits) error {
	if l.MemoryBytes > 0 {
		if err := write(g.file("memory", "memory.limit_in_bytes"), l.MemoryBytes); err != nil {
			return err
		}
		// Swap is bounded together with memory where the kernel accounts it.
		memsw := g.file("memory", "memory.memsw.limit_in_bytes")
		if err := write(memsw, l.MemoryBytes); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if l.MilliCPU > 0 {
		if err := write(g.file("cpu", "cpu.cfs_period_us"), cpuPeriodMicros); err != nil {
			return err
		}
		if err := write(g.file("cpu", "cpu.cfs_quota_us"), l.MilliCPU*cpuPeriodMicros/1000); err != nil {
			return err
		}
	}
	if l.PIDs > 0 {
		return write(g.file("pids", "pids.max"), l.PIDs)
	}
	return nil
}

func (g *Group) statsV1() (Stats, error) {
	var s Stats
	var err error
	if s.MemoryBytes, err = readInt(g.file("memory", "memory.usage_in_bytes")); err != nil {
		return s, err
	}
	s.PeakMemoryBytes, _ = readInt(g.file("memory", "memory.max_usage_in_bytes"))
	oom, err := readKeys(g.file("memory", "memory.oom_control"))
	if err != nil {
		return s, err
	}
	s.OOMKills = oom["oom_kill"]
	nanos, _ := readInt(g.file("cpuacct", "cpuacct.usage"))
	s.CPU = time.Duration(nanos)
	events, _ := readKeys(g.file("pids", "pids.events"))
	s.PIDsHits = events["max"]
	return s, nil
}
