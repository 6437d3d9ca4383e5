package cgroup

import (
	"errors"
	"os"
	"runtime"
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

// chargeSlack is how far from its limit a group may be while there is no memory
// left in it: the kernel charges ahead, 64 pages for each processor.
func chargeSlack() int64 { return int64(runtime.NumCPU()+1) * 64 * int64(os.Getpagesize()) }

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
	if limit, err := readInt(g.file("memory", "memory.limit_in_bytes")); err == nil && s.PeakMemoryBytes >= limit-chargeSlack() {
		// v1 does not count whose limit was met (and memory.failcnt stays 0 on
		// recent kernels). With a kill, a peak at the limit is the evidence.
		s.OwnOOMs = s.OOMKills
	}
	nanos, _ := readInt(g.file("cpuacct", "cpuacct.usage"))
	s.CPU = time.Duration(nanos)
	events, _ := readKeys(g.file("pids", "pids.events"))
	s.PIDsHits = events["max"]
	return s, nil
}
