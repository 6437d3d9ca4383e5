package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// controllersV2 are the v2 controllers that are used.
var controllersV2 = []string{"cpu", "memory", "pids"}

// serviceLeaf is the group that processes are moved into which stand in the
// way of groups beside them, see makeWay. It is no sandbox's and goes with the
// group it is in, when whoever delegated that removes it.
const serviceLeaf = "agentdock-service"

func (g *Group) limitV2(l Limits) error {
	if l.MemoryBytes > 0 {
		if err := write(g.file("", "memory.max"), l.MemoryBytes); err != nil {
			return err
		}
		if err := write(g.file("", "memory.swap.max"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// A sandbox that lost one of its host processes is of no use: end it
		// whole. Kernels before 4.19 lack the file.
		if err := write(g.file("", "memory.oom.group"), 1); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if l.MilliCPU > 0 {
		quota := fmt.Sprintf("%d %d", l.MilliCPU*cpuPeriodMicros/1000, cpuPeriodMicros)
		if err := writeText(g.file("", "cpu.max"), quota); err != nil {
			return err
		}
	}
	if l.PIDs > 0 {
		return write(g.file("", "pids.max"), l.PIDs)
	}
	return nil
}

func (g *Group) statsV2() (Stats, error) {
	var s Stats
	var err error
	if s.MemoryBytes, err = readInt(g.file("", "memory.current")); err != nil {
		return s, err
	}
	// Kernels before 5.19 lack the peak.
	s.PeakMemoryBytes, _ = readInt(g.file("", "memory.peak"))
	events, err := readKeys(g.file("", "memory.events"))
	if err != nil {
		return s, err
	}
	s.OOMKills, s.OwnOOMs = events["oom_kill"], events["oom"]
	cpu, _ := readKeys(g.file("", "cpu.stat"))
	s.CPU = time.Duration(cpu["usage_usec"]) * time.Microsecond
	pids, _ := readKeys(g.file("", "pids.events"))
	s.PIDsHits = pids["max"]
	return s, nil
}

// offers fails if the group dir lacks a controller, which it has when all
// groups above it hand it on.
func (h *Hierarchy) offers(dir string) error {
	have, err := readFields(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	missing := without(controllersV2, have)
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("cgroup v2 at %s lacks %s (it has: %s); in a container or a delegated group, have the groups above hand them on "+
		"(systemd: Delegate=yes); on the host itself, let no v1 hierarchy use them and look for cgroup_disable= on the kernel's command line",
		dir, strings.Join(missing, ", "), strings.Join(have, ", "))
}

// delegate makes the v2 group name and its parents, and has each hand the
// controllers on to the groups below it.
func (h *Hierarchy) delegate(name string) error {
	return again(func() error {
		dir := h.root
		for _, elem := range strings.Split(name, "/") {
			if err := h.handOn(dir); err != nil {
				return err
			}
			if elem == "." || elem == "" {
				return nil
			}
			dir = filepath.Join(dir, elem)
			if err := mkdir(dir); err != nil {
				return err
			}
		}
		return h.handOn(dir)
	})
}

// handOn has a group hand the controllers on. It writes only what is missing:
// the group may belong to somebody else who lets us do no more than read it,
// and a write makes the kernel walk over all groups below.
//
// Only a group without processes can hand on, unless it is the host's root.
// The one that this process is in may be such: a service's group that systemd
// has delegated, or the root of a container. Then all that is in it moves into
// a group below, where it stays under the same limits.
func (h *Hierarchy) handOn(dir string) error {
	control := filepath.Join(dir, "cgroup.subtree_control")
	for range 10 {
		have, err := readFields(control)
		if err != nil {
			return err
		}
		missing := without(controllersV2, have)
		if len(missing) == 0 {
			return nil
		}
		if err := h.offers(dir); err != nil {
			return err
		}
		err = writeText(control, "+"+strings.Join(missing, " +"))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EBUSY):
			if err := h.makeWay(dir); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond) // those that are ending count until they are gone
		case errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("cannot hand controllers on in %s: %w: it is threaded or below a threaded group; use a group that is neither", dir, err)
		case errors.Is(err, unix.EINVAL) && slices.Contains(missing, "cpu"):
			return fmt.Errorf("cannot hand controllers on in %s: %w: there may be processes with realtime scheduling, which the cpu controller refuses; give them ordinary scheduling or a group of their own", dir, err)
		default:
			return fmt.Errorf("cannot hand controllers on in %s: %w", dir, err)
		}
	}
	return fmt.Errorf("cannot hand controllers on in %s: processes keep appearing in it; use a group of its own", dir)
}

// makeWay moves the processes of the group that this process is in into a group
// below. Those of any other group are somebody else's and stay.
func (h *Hierarchy) makeWay(dir string) error {
	procs := filepath.Join(dir, "cgroup.procs")
	pids, err := readFields(procs)
	if err != nil {
		return err
	}
	if len(pids) == 0 {
		return nil // gone meanwhile
	}
	leaf := filepath.Join(dir, serviceLeaf)
	// Another service in the same group may have moved this process already.
	moved, err := readFields(filepath.Join(leaf, "cgroup.procs"))
	if err != nil && !gone(err) {
		return err
	}
	if self := strconv.Itoa(os.Getpid()); !slices.Contains(pids, self) && !slices.Contains(moved, self) {
		return fmt.Errorf("cannot hand controllers on in %s: it holds processes (%s), and cgroup v2 allows that only in groups without; "+
			"move them into a group below it, or choose another group", dir, strings.Join(pids, ", "))
	}
	if err := mkdir(leaf); err != nil {
		return err
	}
	for _, pid := range pids {
		if pid == "0" { // writing it would move this process
			return fmt.Errorf("cannot hand controllers on in %s: it holds a process that cannot be seen from here; run in the process namespace of the group's processes", dir)
		}
		err := writeText(filepath.Join(leaf, "cgroup.procs"), pid)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot move process %s of %s into %s: %w", pid, dir, serviceLeaf, err)
		}
	}
	return nil
}

// without lists what all has and some has not.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

func readFields(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	return strings.Fields(string(data)), err
}
