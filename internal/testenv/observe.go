package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/cgroup"
)

// Sentries lists the sandboxes' processes, by sandbox.
func (e *Execd) Sentries() map[string]int {
	found := map[string]int{}
	for _, pid := range Descendants(e.Pid()) {
		argv := commandLine(pid)
		// A sentry's helpers have its command line too, and come after it.
		if id := argv[len(argv)-1]; argv[0] == "runsc-sandbox" && found[id] == 0 {
			found[id] = pid
		}
	}
	return found
}

// Groups lists the control groups of the sandboxes, by sandbox.
func (e *Execd) Groups() map[string]*cgroup.Group {
	h, err := cgroup.Detect()
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string]*cgroup.Group{}
	instances, _ := h.Group(e.group).Children()
	for _, i := range instances {
		ids, _ := h.Group(filepath.Join(e.group, i)).Children()
		for _, id := range ids {
			found[id] = h.Group(filepath.Join(e.group, i, id))
		}
	}
	return found
}

// Files counts the open descriptors of the running service.
func (e *Execd) Files() int {
	names, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(e.Pid()), "fd"))
	return len(names)
}

// Remains names what is left of a service that runs and has no sandbox, or was
// stopped, beyond what Leftovers looks for: processes of its own (those that
// have ended and were not waited for too), mounts that only it sees, loop
// devices, and, once it was stopped, its files.
func (e *Execd) Remains(stopped bool) []string {
	left := e.Leftovers()
	dir := filepath.Dir(e.StateDir)
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range backing {
		if name, _ := os.ReadFile(f); strings.Contains(string(name), dir) || strings.Contains(string(name), e.Images) {
			left = append(left, "loop device of "+strings.TrimSpace(string(name)))
		}
	}
	if stopped {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, "file "+path)
			}
			return nil
		})
		return left
	}
	for _, pid := range Descendants(e.Pid()) {
		left = append(left, "process "+strconv.Itoa(pid)+" of the service: "+strings.Join(commandLine(pid), " "))
	}
	mounts, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(e.Pid()), "mounts"))
	for _, m := range strings.Split(string(mounts), "\n") {
		if strings.Contains(m, e.StateDir) {
			left = append(left, "mount of the service "+m)
		}
	}
	return left
}
