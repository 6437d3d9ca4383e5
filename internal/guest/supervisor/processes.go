package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one in the PID namespace.
type process struct {
	parent  int
	state   byte // as in /proc/PID/stat: R, S, T, Z …
	threads int
}

// dead says whether nothing of it runs any more. What is said of its state is said
// of its first thread, which may end before the others.
func (p process) dead() bool { return p.state == 'X' || p.state == 'Z' && p.threads <= 1 }

// processes lists all there are, but for the first.
func processes() (map[int]process, error) {
	pids, err := numbers()
	if err != nil {
		return nil, err
	}
	all := make(map[int]process, len(pids))
	for _, pid := range pids {
		if p, err := readStat(pid); err == nil { // else it is gone
			all[pid] = p
		}
	}
	return all, nil
}

// numbers are those of processes; to ask each what it is takes far longer.
func numbers() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != 1 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func readStat(pid int) (process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// 12 (any name) S 1 …: the name is the program's to choose.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const threads = 17
	if len(fields) <= threads {
		return process{}, fmt.Errorf("cannot read what process %d is", pid)
	}
	p := process{state: fields[0][0]}
	p.parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return process{}, err
	}
	p.threads, err = strconv.Atoi(fields[threads])
	return p, err
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
		if all[pid].dead() {
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
	return frozenSince(before, f)
}

// frozenSince does that knowing what there was before. What was not there goes on
// afterwards, even if somebody else had stopped it.
func frozenSince(before map[int]process, f func(all map[int]process)) error {
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
