package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is one in the PID namespace.
type process struct {
	parent int
	state  byte // as in /proc/PID/stat: R, S, T, Z …
}

// processes lists all there are, but for the first.
func processes() (map[int]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		if p, err := readStat(pid); err == nil { // else it is gone
			all[pid] = p
		}
	}
	return all, nil
}

func readStat(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// 12 (any name) S 1 …: the name is the program's to choose.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return process{}, fmt.Errorf("cannot read what process %d is", pid)
	}
	var p process
	if _, err := fmt.Sscanf(string(data[i+1:]), " %c %d", &p.state, &p.parent); err != nil {
		return process{}, err
	}
	return p, nil
}

// below lists what descends from a process.
func below(all map[int]process, top int) []int {
	var found []int
	for pid := range all {
		if pid != top && ancestor(all, pid, func(p int) bool { return p == top }) {
			found = append(found, pid)
		}
	}
	return found
}

// astray lists what is neither a shepherd nor below one.
func astray(all map[int]process, shepherd func(pid int) bool) []int {
	var found []int
	for pid := range all {
		if !shepherd(pid) && !ancestor(all, pid, shepherd) {
			found = append(found, pid)
		}
	}
	return found
}

// ancestor says whether one of a process's ancestors is such a one. The list was
// not taken at one moment, so a chain may be broken, or even go in a circle.
func ancestor(all map[int]process, pid int, is func(int) bool) bool {
	for range len(all) {
		pid = all[pid].parent
		if pid <= 1 {
			return false
		}
		if is(pid) {
			return true
		}
	}
	return false
}

// kill sends SIGKILL to processes, and says whether any was alive.
func kill(all map[int]process, pids []int) (alive bool) {
	for _, pid := range pids {
		if s := all[pid].state; s == 'Z' || s == 'X' {
			continue
		}
		alive = true
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return alive
}

// frozen runs f while no process but this one runs. Processes that fork faster
// than they can be killed one by one are the same set before and after f. Those
// that are not killed go on; to be stopped for a moment is all that they see.
func frozen(f func(all map[int]process)) error {
	before, err := processes()
	if err != nil {
		return err
	}
	// There may be none any more to stop: f must see that.
	if err := unix.Kill(-1, unix.SIGSTOP); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	all, err := processes()
	if err == nil {
		f(all)
	}
	for pid := range all {
		if p, ok := before[pid]; !ok || p.state != 'T' {
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
	if err != nil {
		_ = unix.Kill(-1, unix.SIGCONT)
	}
	return err
}
